"""What a package exports, imported on first use: a program pays only for the parts that it uses.

Arrow without pandas.

As soon as Arrow is given a Python list or a numpy array, it imports pandas, if that is installed, to find out whether
that was a pandas object. This takes half a second and 25 MB in each process, and none of ours has such an object.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa


def on_first_use(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    modules   which module each name is in; a name that is a module of the package is given as itself
    """

    def found(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(modules[name])
        return module if modules[name] == f"{package}.{name}" else getattr(module, name)

    return found


_PANDAS = "pandas"


def use_arrow_without_pandas() -> None:
    """Keeps Arrow from looking for pandas by itself. Whoever asks it for pandas objects still gets them."""
    if _PANDAS in sys.modules:
        return
    nowhere = _Nowhere()
    sys.meta_path.insert(0, nowhere)
    try:
        pa.array([0])  # Arrow looks for it once
    finally:
        sys.meta_path.remove(nowhere)


class _Nowhere:
    """Finds no pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if name == _PANDAS:
            raise ModuleNotFoundError(name)
