"""Compiles the C library into the wheel, which then serves every Python of its platform (`py3-none-PLATFORM`).

Without a compiler, or with `TEACUP_WHEEL=any`, the wheel is `py3-none-any`, and its Python code reads and writes
records more slowly.
"""

import os
import sys
import sysconfig
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))
from teacup.kafka.native import library
from teacup.kafka.native.build import NotBuilt, build

PLATFORM = os.environ.get("TEACUP_WHEEL")


class Package(build_py):
    """Packages the modules, and the library beside them."""

    def run(self) -> None:
        super().run()
        if self.editable_mode or PLATFORM == "any":
            return  # `make venv` builds it beside the sources; a wheel for any platform has none
        try:
            build(PLATFORM, to=Path(self.build_lib, "teacup", "kafka", "native", library.path().name).absolute())
        except NotBuilt as error:
            if PLATFORM is not None:
                raise
            self.warn(f"the wheel has no C library: {error}")


class Wheel(bdist_wheel):
    """Names the platform of the library, but no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        folder = Path(self.get_finalized_command("build_py").build_lib, "teacup", "kafka", "native")
        here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        return "py3", "none", (PLATFORM or here) if any(folder.glob("*.so")) else "any"


setup(cmdclass={"bdist_wheel": Wheel, "build_py": Package})
