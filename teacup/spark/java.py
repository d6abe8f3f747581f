"""This machine's Java, and the folder where files are kept that any job may use again.

A SPARK_HOME for masters on this machine: the installed PySpark, without its zipped copy of its own Python sources.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` at the front of the path of every Python process it starts. The zip
holds no compiled code, so each of the five processes of a query's start compiles PySpark again, half a second each, one
after the other. In this home the zip is missing, and they import the installed package, which is the same.

`local-cluster` writes into `$SPARK_HOME/work`, and no property changes that: it gets a temporary home of its own.

The JVM's options for the archive of Spark's classes (`teacup.spark.class_archive`), if it was written.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from teacup.spark.errors import MissingTool

MINIMUM_JAVA = 17


_HOW = (
    f"Teacup needs Java {MINIMUM_JAVA} or newer. Debian, Ubuntu: "
    "apt-get install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17; or set JAVA_HOME to the one you have."
)


def java_of(env: Mapping[str, str] = os.environ) -> str:
    """Returns the `java` of `JAVA_HOME`, else of the `PATH`, of any version; raises `MissingTool` if there is none."""
    home = env.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=env.get("PATH"))
    if java is None or not Path(java).exists():
        raise MissingTool(f"no Java found ({f'JAVA_HOME={home}' if home else 'PATH has no java'}). {_HOW}")
    return java


def find_java(env: Mapping[str, str] = os.environ) -> str:
    """Finds Java by `java_of`, and asks it for its version; raises `MissingTool` unless that is 17 or newer."""
    java = java_of(env)
    # In a session of its own: a signal to the job's group would otherwise end it, and look like a broken Java.
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, start_new_session=True)
    version = re.search(r'version "(\d+)', printed.stderr + printed.stdout)
    if printed.returncode != 0 or version is None:
        raise MissingTool(f"{java} -version prints no version: {printed.stderr.strip()!r}. {_HOW}")
    if int(version[1]) < MINIMUM_JAVA:
        raise MissingTool(f"{java} is Java {version[1]}. {_HOW}")
    return java


def check_java() -> None:
    """Checks what a Spark session needs of this machine, before anything is claimed. Raises `MissingTool`.

    Under `spark-submit` a JVM runs already.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        find_java()


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """`TEACUP_CACHE`, else `~/.cache/teacup`."""
    named = env.get("TEACUP_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "teacup"


_LINKED = ("bin", "jars", "sbin")


def use_spark_home(env: MutableMapping[str, str] = os.environ, *, shared: bool = True) -> None:
    """Sets SPARK_HOME in `env` unless it is set already; call it before the JVM is started.

    shared   whether the home may be the cached one; otherwise it is removed when this process ends
    """
    if "SPARK_HOME" in env:
        return
    folder = cache_folder() / "spark-home" if shared else Path(tempfile.mkdtemp(prefix="teacup-spark-"))
    if not shared:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    env["SPARK_HOME"] = str(spark_home(folder))


def spark_home(folder: Path) -> Path:
    """Returns the home of the installed PySpark in `folder`, created if it does not exist yet."""
    distribution = importlib.metadata.distribution("pyspark")
    installed = Path(str(distribution.locate_file("pyspark"))).resolve()
    digest = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    home = folder / f"{distribution.version}-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        try:
            (home / name).symlink_to(installed / name)
        except FileExistsError:
            continue  # created earlier, or by another process just now
    return home


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
