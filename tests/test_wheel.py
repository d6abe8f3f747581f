"""What a user installs: the wheel, built as `pip` builds it, puts five packages at the top, and all that they need."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from tests.support.packages import MAY_IMPORT, ROOT

NEEDED = {
    "datadelay/api/page/index.html",
    "datadelay/api/migrations/script.py.mako",
    "deploy/broker/pom.xml",
    "deploy/examples/window-join-minimal.yaml",
    "teacup/py.typed",
    "teacup/spark/log4j2.properties",
}


def test_the_wheel_has_five_packages_and_what_they_need(tmp_path: Path) -> None:
    """No tests, no benchmarks; neither does anything of it lie at the top of a user's environment by another name."""
    source = tmp_path / "source"  # without the build folder of an earlier wheel, whose modules would be in it
    for package in MAY_IMPORT:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(source)], check=True)

    (wheel,) = tmp_path.glob("teacup_joins-*.whl")
    names = set(ZipFile(wheel).namelist())

    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(MAY_IMPORT)
    assert names >= NEEDED


def test_nothing_that_was_built_is_in_the_repository() -> None:
    """A library of another machine would be taken for one that is up to date."""
    listed = subprocess.run(["git", "ls-files", "*.so", "*.pyc"], cwd=ROOT, capture_output=True, text=True, check=True)

    assert listed.stdout == ""
