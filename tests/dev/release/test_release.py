"""What is checked before a release; the wheels themselves are built by `make wheels`."""

from __future__ import annotations

import base64
import hashlib
import struct
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from dev.release.checks import not_audited, refused, vulnerable
from dev.release.shipped import shipped
from dev.release.wheels import PACKAGES, PLATFORMS, ROOT, faults, kind_of_library, kind_of_platform
from teacup.kafka.native.build import TARGETS

HEADS = {
    "linux x86_64": b"\x7fELF\x02\x01".ljust(18, b"\0") + struct.pack("<H", 62),
    "linux aarch64": b"\x7fELF\x02\x01".ljust(18, b"\0") + struct.pack("<H", 183),
    "macosx x86_64": b"\xcf\xfa\xed\xfe" + struct.pack("<I", 0x01000007) + bytes(12),
    "macosx arm64": b"\xcf\xfa\xed\xfe" + struct.pack("<I", 0x0100000C) + bytes(12),
}


def wheel_of(folder: Path, platform: str, library: bytes | None) -> Path:
    """A wheel with as little in it as is checked."""
    about = "teacup_joins-1.2.dist-info"
    files = {f"{package}/__init__.py": b"" for package in PACKAGES}
    files |= {"teacup/py.typed": b"", "deploy/broker/pom.xml": b"", f"{about}/licenses/LICENSE": b"Apache"}
    files |= {f"{about}/entry_points.txt": b"", f"{about}/METADATA": b"Name: teacup-joins\nVersion: 1.2\n"}
    files[f"{about}/WHEEL"] = f"Wheel-Version: 1.0\nTag: py3-none-{platform}\n".encode()
    if library is not None:
        files["teacup/kafka/native/libteacup-0.so"] = library

    def digest(data: bytes) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in files.items())
    path = folder / f"teacup_joins-1.2-py3-none-{platform}.whl"
    with ZipFile(path, "w") as archive:
        for name, data in {**files, f"{about}/RECORD": f"{record}{about}/RECORD,,\n".encode()}.items():
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_wheel_that_is_right_has_no_fault(tmp_path: Path, platform: str) -> None:
    """With the library of its platform."""
    library = HEADS[kind_of_platform(platform)]

    assert list(faults(wheel_of(tmp_path, platform, library), platform, "1.2")) == []


@pytest.mark.parametrize(
    ("platform", "library", "version", "fault"),
    [
        ("macosx_11_0_arm64", HEADS["macosx x86_64"], "1.2", "its libraries are for"),
        ("manylinux_2_17_aarch64", None, "1.2", "its libraries are for"),
        ("manylinux_2_17_x86_64", HEADS["linux x86_64"] + b"more", "1.3", "it is named"),
    ],
)
def test_a_wheel_that_is_wrong_is_named(
    tmp_path: Path, platform: str, library: bytes | None, version: str, fault: str
) -> None:
    """A library of another processor, none, one too many; another version."""
    found = list(faults(wheel_of(tmp_path, platform, library), platform, version))

    assert [said for said in found if said.startswith(fault)]


def test_a_file_that_was_changed_is_named(tmp_path: Path) -> None:
    """Its checksum is in the wheel."""
    wheel = wheel_of(tmp_path, "manylinux_2_17_x86_64", HEADS["linux x86_64"])
    changed = tmp_path / "changed" / wheel.name
    changed.parent.mkdir()
    with ZipFile(wheel) as before, ZipFile(changed, "w") as after:
        for name in before.namelist():
            after.writestr(name, b"x" if name == "teacup/py.typed" else before.read(name))

    assert list(faults(changed, "manylinux_2_17_x86_64", "1.2")) == ["teacup/py.typed is not what its RECORD says"]


def test_every_platform_is_known_by_its_library() -> None:
    """And what is no library is none."""
    assert {kind_of_library(head) for head in HEADS.values()} == {kind_of_platform(platform) for platform in TARGETS}
    assert kind_of_library(b"MZ".ljust(20, b"\0")) == ""


def test_what_is_shipped_is_what_users_install() -> None:
    """Not what developers need beside it."""
    found = shipped()

    assert {"pyspark", "confluent-kafka", "aerospike", "opentelemetry-sdk"} <= found.keys()
    assert not {"pytest", "mypy", "selenium", "teacup-joins"} & found.keys()


def test_the_licence_of_everything_that_is_shipped_is_allowed() -> None:
    """As the metadata of what is installed here say."""
    assert list(refused([(name, package.version, package.licence) for name, package in shipped().items()])) == []


def test_a_licence_that_is_not_allowed_is_named() -> None:
    """So is none at all."""
    found = [("a", "1", "MIT License"), ("b", "2", "GNU Affero General Public License v3"), ("c", "3", "UNKNOWN")]

    assert list(refused(found)) == ["b 2: GNU Affero General Public License v3", "c 3: UNKNOWN"]


def test_an_index_that_knows_no_package_has_audited_nothing() -> None:
    """A mirror without advisories: its `No known vulnerabilities found` proves nothing."""
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]},
            {"name": "b", "version": "2", "vulns": []},
            {"name": "c", "skip_reason": "Dependency not found on PyPI"},
        ]
    }

    assert vulnerable(report) == ["a 1: PYSEC-1, fixed in 1.1"]
    assert not_audited(report) == ["c"]


def test_the_changelog_has_a_section_for_this_version() -> None:
    """Only its date is missing until it is tagged."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

    assert f"\n## [{version}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
