"""Compiles the C library into the wheel, which then serves every Python of its platform (`py3-none-PLATFORM`).

Without a compiler the wheel is `py3-none-any`, and its Python code reads and writes records more slowly.
"""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))
from kafkaio.native import library
from kafkaio.native.build import NotBuilt, build

PLATFORM = os.environ.get("TEACUP_WHEEL")


class Wheel(bdist_wheel):
    """Names the platform of the library, but no version of Python."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = PLATFORM is None and not library.path().exists()

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", "any" if self.root_is_pure else PLATFORM or super().get_tag()[2]


class Package(build_py):
    """The modules, and the library."""

    def run(self) -> None:
        try:
            if PLATFORM is not None or not library.path().exists():
                build(PLATFORM)
        except NotBuilt as error:
            if PLATFORM is not None:
                raise
            self.warn(f"the wheel has no C library: {error}")
        super().run()


setup(cmdclass={"bdist_wheel": Wheel, "build_py": Package})
