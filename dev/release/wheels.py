"""Builds a wheel for each platform on this machine, and checks each: `python -m dev.release.wheels [--to dist]`.

Those of `TARGETS`, each with the C library, which ziglang compiles for that platform.

There is none for Windows: Teacup locks files and looks up users as POSIX does (`fcntl`, `pwd`), and does not run there.

Checked are the file's name, the tags in its WHEEL, the checksums of its RECORD, that it holds our packages and nothing
else, its licence and its command, and that the library in it is one, for that operating system and processor. None of
them is run: only that of this machine could be.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from zipfile import ZipFile

from teacup.kafka.native.build import TARGETS

ROOT = Path(__file__).parents[2]
PACKAGES = ("datadelay", "dedup", "deploy", "joins", "teacup")
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
PLATFORMS = tuple(TARGETS)

_ELF = {62: "x86_64", 183: "aarch64"}
_MACH_O = {0x01000007: "x86_64", 0x0100000C: "arm64"}


def kind_of_library(head: bytes) -> str:
    """Returns the operating system and processor of a shared library, from its first 20 bytes; empty if unknown."""
    if head[:6] == b"\x7fELF\x02\x01":
        return f"linux {_ELF.get(struct.unpack_from('<H', head, 18)[0], 'unknown')}"
    if head[:4] == b"\xcf\xfa\xed\xfe":
        return f"macosx {_MACH_O.get(struct.unpack_from('<I', head, 4)[0], 'unknown')}"
    return ""


def kind_of_platform(platform: str) -> str:
    """Returns the same of a platform's tag."""
    system = platform.partition("_")[0].replace("manylinux", "linux").replace("musllinux", "linux")
    processor = next((name for name in ("x86_64", "aarch64", "arm64") if platform.endswith(name)), "")
    return f"{system} {processor}"


def faults(wheel: Path, platform: str, version: str) -> Iterator[str]:
    """Yields what is wrong with a wheel."""
    tag = f"py3-none-{platform}"
    if wheel.name != f"teacup_joins-{version}-{tag}.whl":
        yield f"it is named {wheel.name}"
        return
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        about = f"teacup_joins-{version}.dist-info"
        texts = {name: archive.read(f"{about}/{name}").decode() for name in ("WHEEL", "METADATA", "RECORD")}
        if f"\nTag: {tag}\n" not in f"\n{texts['WHEEL']}\n":
            yield f"its WHEEL has not the tag {tag}"
        if f"\nVersion: {version}\n" not in texts["METADATA"]:
            yield f"its METADATA has not the version {version}"
        tops = {name.split("/")[0] for name in names} - {about}
        if tops != set(PACKAGES):
            yield f"it holds {', '.join(sorted(tops))}"
        needed = [
            f"{about}/entry_points.txt",
            f"{about}/licenses/LICENSE",
            "teacup/py.typed",
            "deploy/broker/pom.xml",
        ]
        yield from (f"{name} is missing" for name in needed if name not in names)
        libraries = [name for name in names if name.endswith(".so")]
        kinds = [kind_of_library(archive.read(name)[:20]) for name in libraries]
        wanted = [kind_of_platform(platform)]
        if kinds != wanted:
            yield f"its libraries are for {kinds}, and {wanted} was asked for"
        for name, digest, _ in csv.reader(StringIO(texts["RECORD"])):
            if digest and digest != _digest(archive.read(name)):
                yield f"{name} is not what its RECORD says"


def _digest(data: bytes) -> str:
    return f"sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()}"


def build(platform: str, to: Path) -> Path:
    """Builds the wheel of a platform from a clean copy of the sources. Raises `CalledProcessError`."""
    with tempfile.TemporaryDirectory(prefix="teacup-wheel-") as folder:
        source = Path(folder) / "source"  # the build folder of another platform would be packaged, too
        for package in PACKAGES:
            shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        for file in FILES:
            shutil.copy(ROOT / file, source)
        made = Path(folder) / "made"
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run(
            [*command, "--wheel-dir", str(made), str(source)],
            check=True,
            env={**os.environ, "TEACUP_WHEEL": platform, "PYTHONPATH": ""},
        )
        (wheel,) = made.glob("*.whl")
        return Path(shutil.move(wheel, to / wheel.name))


def _version() -> str:
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("version = "))


def main() -> int:
    """Builds them all; returns how many are wrong."""
    parser = argparse.ArgumentParser(prog="python -m dev.release.wheels", description="Wheels for all platforms.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", action="append", choices=PLATFORMS, help="a platform; may be given several times")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    wrong = 0
    for platform in asked.only or PLATFORMS:
        try:
            wheel = build(platform, asked.to)
        except subprocess.CalledProcessError as error:
            wrong += 1
            print(f"error  {platform}: {error}")
            continue
        found = list(faults(wheel, platform, _version()))
        wrong += bool(found)
        said = f"{'error' if found else 'ok   '}  {wheel.name}  {wheel.stat().st_size:,} bytes  {'; '.join(found)}"
        print(said.rstrip())
    return wrong


if __name__ == "__main__":
    sys.exit(main())
