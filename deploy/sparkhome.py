"""A SPARK_HOME for masters on this machine: the installed PySpark, without its zipped copy of its own Python sources.

Spark puts `$SPARK_HOME/python/lib/pyspark.zip` in front of the path of every Python process it starts. The zip holds no
compiled code, so that each of the five processes of a query's start compiles PySpark once more, half a second each, one
after the other. In this home the zip is missing, and they import the package that is installed, which is the same.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import MutableMapping
from pathlib import Path

from deploy.brokerjars import cache_folder

_LINKED = ("bin", "jars", "sbin")


def use_spark_home(env: MutableMapping[str, str] = os.environ) -> None:
    """Name the home in `env`, where no other one is named; must come before the JVM is started."""
    if "SPARK_HOME" not in env:
        env["SPARK_HOME"] = str(spark_home())


def spark_home() -> Path:
    """The folder, made where it is not there yet."""
    distribution = importlib.metadata.distribution("pyspark")
    installed = Path(str(distribution.locate_file("pyspark"))).resolve()
    digest = hashlib.sha256(str(installed).encode()).hexdigest()[:12]
    home = cache_folder() / "spark-home" / f"{distribution.version}-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        try:
            (home / name).symlink_to(installed / name)
        except FileExistsError:
            continue  # made before, or by another process at this moment
    return home
