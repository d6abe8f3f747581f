"""Spark's classes in the JVM's memory format, as loading 15,000 classes takes half of a job's start.

    python -m teacup.spark.class_archive   writes the archive into the cache folder (150 MB), once per Spark and Java

A session on a local master uses it if it exists. The JVM checks by itself that the archive was written by the same Java
for the same jars, and otherwise starts without it (JEP 350, dynamic class-data sharing).
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from teacup.base.cache import cache_folder, cached
from teacup.spark.batches.one_row import carry_out
from teacup.spark.errors import NoCache, SparkError
from teacup.spark.java import SILENT, archive_name
from teacup.spark.session import Session

WRITE_DEADLINE_S = 120.0


def write_archive() -> Path:
    """Runs a short session whose JVM, when it ends, writes the classes it loaded. Raises `MissingTool`, `NoCache`."""
    name = archive_name()
    if (there := cached(name)) is not None:
        return there
    cache = cache_folder()
    if cache is None:
        raise NoCache("no folder for the archive can be written to: name one, TEACUP_CACHE=FOLDER")
    archive = cache / name
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="writing-", dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        _run_and_write(written)
        os.replace(written, archive)
    return archive


def _run_and_write(written: Path) -> None:
    options = f'"-XX:ArchiveClassesAtExit={written}" {SILENT}'
    session = Session("archive", {"master": "local[1]", "spark.driver.extraJavaOptions": options}, rows_in_jvm=False)
    carry_out(session.spark)
    session.close(WRITE_DEADLINE_S)  # the JVM writes as it ends


def _main() -> int:
    try:
        sys.stdout.write(f"{write_archive()}\n")
    except SparkError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
