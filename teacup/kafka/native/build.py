"""Compiles the C library with `cc` (or `$CC`), or with `ziglang` from PyPI if there is none.

`python -m teacup.kafka.native.build` builds it for this machine, beside the sources, unless it is already there. The
wheel's build (setup.py) calls `build` too; `TEACUP_WHEEL` names the platform tag of another machine, for which ziglang
compiles.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from teacup.kafka.native import library

TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
}
"""ziglang's name for each platform that has a wheel."""

FLAGS = ("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")
SANITIZED = (
    *("-std=c11", "-g", "-O1", "-fPIC", "-shared", "-fno-omit-frame-pointer"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


class NotBuilt(Exception):
    """There is no compiler, or it failed; the message says which, and what it printed."""


def build(platform: str | None = None, to: Path | None = None, flags: tuple[str, ...] = FLAGS) -> Path:
    """Compiles the library into a file and returns it. It is moved there when complete: no reader sees half of it.

    platform   a key of `TARGETS`; None: this machine
    to         the file; None: where `library` looks for it
    Raises `NotBuilt`.
    """
    goal = to or library.path()
    command = [*_compiler(platform), *flags]
    sources = sorted(str(source) for source in library.SOURCES.glob("*.c"))
    with tempfile.TemporaryDirectory(dir=goal.parent, prefix=".building-") as folder:
        made = Path(folder) / "library.so"
        done = subprocess.run([*command, "-o", str(made), *sources], capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotBuilt(f"{shlex.join(command)} failed:\n{done.stderr}{done.stdout}")
        os.replace(made, goal)
    return goal


def _compiler(platform: str | None) -> list[str]:
    named = shlex.split(os.environ.get("CC", ""))
    if platform is None and (named or shutil.which("cc")):
        return named or ["cc"]
    if find_spec("ziglang") is None:
        raise NotBuilt("there is no C compiler (cc), and no ziglang; pip install ziglang")
    target = [] if platform is None else ["-target", TARGETS[platform]]
    return [sys.executable, "-m", "ziglang", "cc", *target]


def main() -> int:
    """Builds for this machine and removes libraries built from other sources. Returns the exit code."""
    goal = library.path()
    try:
        if not goal.exists():
            build()
    except (NotBuilt, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for other in goal.parent.glob("libteacup-*.so"):
        if other != goal:
            other.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
