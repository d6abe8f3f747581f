"""Which packages users install with Teacup and all its extras, in the versions that were tested here.

The environment of the developers has more; only what is reachable from `teacup-joins[...]` is shipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution

OURS = "teacup-joins"
EXTRAS = ("testing", "serve", "postgresql", "redis", "registry", "otlp", "lineage")


def shipped() -> Mapping[str, str]:
    """Returns name -> version, sorted, without Teacup itself."""
    found: dict[str, str] = {}
    left: list[tuple[str, tuple[str, ...]]] = [(OURS, EXTRAS)]
    seen = set()
    while left:
        name, extras = left.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or another Python
        if name != OURS:
            found[_normal(name)] = installed.version
        left += _needed(installed.requires or (), extras)
    return dict(sorted(found.items()))


def _needed(requirements: Sequence[str], extras: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    from packaging.requirements import Requirement

    needed = []
    for text in requirements:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed.append((_normal(requirement.name), tuple(sorted(requirement.extras))))
    return needed


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    for package, version in shipped().items():
        print(f"{package}=={version}")
