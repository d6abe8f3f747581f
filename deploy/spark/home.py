"""A SPARK_HOME for masters on this machine: the installed PySpark, without its zipped copy of its own Python sources.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` at the front of the path of every Python process it starts. The zip
holds no compiled code, so each of the five processes of a query's start compiles PySpark again, half a second each, one
after the other. In this home the zip is missing, and they import the installed package, which is the same.

`local-cluster` writes into `$SPARK_HOME/work`, and no property changes that: it gets a temporary home of its own.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from pathlib import Path

from deploy.spark.java import cache_folder

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
