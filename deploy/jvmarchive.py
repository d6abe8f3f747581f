"""Spark's classes as the JVM wants them in memory: half of a job's start is the loading of 15,000 classes.

    python -m deploy.jvmarchive      writes the archive into the cache folder (160 MB), once for a Spark and a Java

A session on a local master uses it where it is there. The JVM checks by itself that the archive was written by the
same Java over the same jars, and starts without it otherwise (JEP 350, dynamic class-data sharing).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.brokerjars import MissingTool, cache_folder, find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
WRITE_DEADLINE_S = 120.0


def archive_options() -> tuple[str, ...]:
    """The JVM's options for the archive of this Spark and this Java; none where none was written."""
    if not _folder().exists():
        return ()
    archive = archive_file()
    return (f'"-XX:SharedArchiveFile={archive}"', _SILENT) if archive.exists() else ()


def archive_file() -> Path:
    """Where the archive is, or would be. Raises `MissingTool` without Java, which Spark needs as well."""
    java = find_java()
    spark = importlib.metadata.distribution("pyspark")
    told = f"{Path(java).resolve()} {spark.locate_file('pyspark')}"
    digest = hashlib.sha256(told.encode()).hexdigest()[:12]
    return _folder() / f"spark-{spark.version}-{digest}.jsa"


def _folder() -> Path:
    return cache_folder() / "jvm"


def write_archive() -> Path:
    """Run a short session, and let its JVM write down what it loaded as it ends. Raises `MissingTool`."""
    archive = archive_file()
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="writing-", dir=archive.parent) as folder:
        written = Path(folder) / archive.name
        _run_and_write(written, Path(folder))
        os.replace(written, archive)
    return archive


def _run_and_write(written: Path, folder: Path) -> None:
    from deploy.session import build_session

    options = f'"-XX:ArchiveClassesAtExit={written}" {_SILENT}'
    spark = build_session(
        "archive", {"master": "local[1]", "spark.driver.extraJavaOptions": options}, rows_in_jvm=False
    )
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rows = stream.selectExpr("value").mapInArrow(lambda batches: batches, "value bigint")
    query = (
        rows.writeStream.foreachBatch(_collect)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM's word to end
    gateway.proc.wait(WRITE_DEADLINE_S)


def _collect(frame: DataFrame, batch_id: int) -> None:
    frame.collect()


def _main() -> int:
    try:
        sys.stdout.write(f"{write_archive()}\n")
    except MissingTool as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
