"""Compiles the C library into the wheel, which then serves every Python of its platform (`py3-none-PLATFORM`).

`TEACUP_WHEEL` names the tag of another platform, for which ziglang compiles.
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
from teacup.kafka.native.build import build

PLATFORM = os.environ.get("TEACUP_WHEEL")


class Package(build_py):
    """Packages the modules, and the library beside them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # beside the sources `make venv` builds it
            build(PLATFORM, to=Path(self.build_lib, "teacup", "kafka", "native", library.path().name).absolute())


class Wheel(bdist_wheel):
    """Names the platform of the library, but no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", PLATFORM or sysconfig.get_platform().replace("-", "_").replace(".", "_")


setup(cmdclass={"bdist_wheel": Wheel, "build_py": Package})
