"""The JVM's options for the archive of Spark's classes (`deploy.spark.jvmarchive`), if it was written."""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path

from deploy.spark.java import cache_folder, java_of

# Java 17 maps the archive at another address than it was written for: all of it is then read, changed and so copied. At
# its own address, only what is used is read, and most of that is not copied.
_MAPPED = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
_SOURCE_OF_CLASSES = "a Python data source under availableNow"  # a different training run means a different archive


def archive_options() -> tuple[str, ...]:
    """Returns the JVM's options for the archive of this Spark and this Java; none if it was not written."""
    if not _folder().exists():
        return ()
    archive = archive_file()
    return (f'"-XX:SharedArchiveFile={archive}"', _MAPPED, SILENT) if archive.exists() else ()


def archive_file() -> Path:
    """Returns where the archive is, or would be. Raises `MissingTool` without Java, which Spark needs too."""
    java = java_of()
    spark = importlib.metadata.distribution("pyspark")
    installed = Path(str(spark.locate_file("pyspark"))).resolve()
    source = f"{Path(java).resolve()} {installed} {_SOURCE_OF_CLASSES}"
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return _folder() / f"spark-{spark.version}-{digest}.jsa"


def _folder() -> Path:
    return cache_folder() / "jvm"
