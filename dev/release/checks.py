"""SBOM, dependency audit and licences of what is shipped: `make release-check`.

    SBOM        cyclonedx-bom writes dist/teacup-joins.cdx.json
    audit       pip-audit asks an index of advisories (`--index pypi` or `osv`). If it does not answer, or does not know
                the packages (a mirror has no advisories), that is said, and counts as not done: exit code 2
    licences    those that the packages' metadata name; each must be one of `ALLOWED` (`make test` looks at them, too)

The tools run in an environment of their own; the packages that they look at are those of `--python`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
ALLOWED = (
    r"Apache(?: Software License|[- ]?2\.0|-2\.0)|Apache License",
    r"\bMIT\b|MIT License|MIT-0|MIT-CMU",
    r"BSD|0BSD|ISC|Zlib|zlib",
    r"Python Software Foundation|PSF-2\.0|CNRI-Python",
    r"Mozilla Public License 2\.0|MPL-2\.0",
    r"Unlicense|CC0-1\.0|Public Domain",
    r"LGPL|Lesser General Public License",
    r"OpenLDAP Public License|OLDAP",
)
"""Permissive, or copyleft only for changes to the package itself; LGPL: imported as it is, not changed."""
NOT_DONE = 2


def refused(found: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """Yields the packages (name, version, licence) of which no part of the licence is allowed."""
    for name, version, licence in found:
        if not any(re.search(allowed, licence) for allowed in ALLOWED):
            yield f"{name} {version}: {licence or 'no licence is named'}"


def main() -> int:
    """Does all three; returns 0, 1 if something was found, or 2 if something could not be looked at."""
    parser = argparse.ArgumentParser(prog="python -m dev.release.checks", description="SBOM, audit, licences.")
    parser.add_argument("--python", type=Path, required=True, help="the interpreter whose packages are shipped")
    parser.add_argument("--index", choices=("pypi", "osv"), default="pypi", help="the index of advisories")
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    asked = parser.parse_args()
    asked.to.mkdir(parents=True, exist_ok=True)
    rows = [line.split("\t") for line in _printed([str(asked.python), "-m", "dev.release.shipped"]).splitlines()]
    print(f"shipped: {len(rows)} packages")
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "shipped.txt"
        pins.write_text("".join(f"{pin}\n" for pin, _ in rows))
        codes = [
            _sbom(pins, asked.to / "teacup-joins.cdx.json"),
            _audit(pins, asked.index),
            _licences([(*pin.partition("==")[::2], licence) for pin, licence in rows]),
        ]
    return max(codes)


def _sbom(pins: Path, to: Path) -> int:
    command = [str(BIN / "cyclonedx-py"), "requirements", str(pins), "--pyproject", str(ROOT / "pyproject.toml")]
    _printed([*command, "--output-reproducible", "--of", "JSON", "-o", str(to)])
    components = json.loads(to.read_text())["components"]
    wanted = len(pins.read_text().splitlines())
    print(f"SBOM: {to}, {len(components)} components of {wanted}")
    return int(len(components) != wanted)


def vulnerable(report: Mapping[str, Any]) -> list[str]:
    """Returns what pip-audit's JSON says of advisories, a line for each."""
    return [
        f"{found['name']} {found['version']}: {one['id']}, fixed in {', '.join(one['fix_versions']) or 'no version'}"
        for found in report["dependencies"]
        for one in found.get("vulns", ())
    ]


def not_audited(report: Mapping[str, Any]) -> list[str]:
    """Returns the packages that the index knows nothing of: an index without advisories would find nothing in any."""
    return [found["name"] for found in report["dependencies"] if "skip_reason" in found]


def _audit(pins: Path, index: str) -> int:
    command = [str(BIN / "pip-audit"), "-r", str(pins), "--no-deps", "--disable-pip", "--format", "json"]
    command += ["-s", index, "--progress-spinner", "off"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or "nothing was said").splitlines()[-1]
        print(f"audit: NOT DONE, the index of advisories ({index}) gave no answer: {last}")
        return NOT_DONE
    wrong, unknown = vulnerable(report), not_audited(report)
    for line in wrong:
        print(f"  {line}")
    if unknown:
        print(f"audit: NOT DONE, {index} knows nothing of {len(unknown)} packages: {', '.join(unknown[:5])}, …")
    print(f"audit: {len(report['dependencies']) - len(unknown)} packages looked at, {len(wrong)} advisories")
    return 1 if wrong else NOT_DONE * bool(unknown)


def _licences(found: Sequence[tuple[str, str, str]]) -> int:
    wrong = list(refused(found))
    print(f"licences: {len(found)} packages, {len(wrong)} not allowed")
    for line in wrong:
        print(f"  {line}")
    return int(bool(wrong))


def _printed(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
