"""The same tests with a library that stops at an access out of bounds, use after free, or undefined behaviour."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from teacup.kafka.native.build import SANITIZED, build

HERE = Path(__file__).parent
RECORDS = HERE.parent / "records"
OF_AVRO = ("test_c_finds_the_same_records", "test_c_agrees_about_texts_and_numbers")
TESTS = [
    *(HERE / f"test_{name}.py" for name in ("records", "produce")),
    *(RECORDS / f"test_{name}.py" for name in ("json_fields", "record_key", "projection", "written_times")),
    *(f"{RECORDS}/test_avro_hostile.py::{name}" for name in OF_AVRO),
]


def printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    """Records, columns, what is produced, JSON, times and Avro records; the sanitizer is loaded before Python."""
    library = build(to=tmp_path / "sanitized.so", flags=SANITIZED)
    # C++'s as well, or the sanitizer stops at the first exception in polars
    first = [printed("cc", f"-print-file-name={name}") for name in ("libasan.so", "libstdc++.so")]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(first),
        # Leaks are Python's own; a test asks for more memory than there is
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "TEACUP_TEST_LIBRARY": str(library),
    }

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", "not python", *map(str, TESTS)],
        cwd=HERE.parents[3],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
