"""Spark's worker daemon, with everything that our workers need imported before it forks them.

Without it every worker imports what the first batch needs by itself, and compiles PySpark's own sources again: Spark
puts `pyspark.zip`, which holds no compiled code, before the installed package on the path. Set as
`spark.python.daemon.module`; forked workers also share the memory of what is imported.

What is imported is frozen: PySpark's workers collect garbage after every task, and scanning everything that a worker
has imported took as long as joining 50,000 records.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import logging
import sys
from pathlib import Path

NEEDED = (
    *("pyspark.worker", "pyspark.sql.worker.plan_data_source_read"),
    *("joins.admission.source", "joins.window.stage", "deploy.output.stage"),
    *("sparkio.summaries", "duckdb"),
)


def use_installed_pyspark() -> None:
    """Uses the installed PySpark, if there is one, instead of the zip."""
    without = [entry for entry in sys.path if Path(entry).name != "pyspark.zip"]
    if any((Path(entry) / "pyspark" / "worker.py").exists() for entry in without):
        sys.path[:] = without


if __name__ == "__main__":
    use_installed_pyspark()
    importlib.import_module("sparkio.workerlog").log_like_the_driver()
    logging.getLogger("teacup").setLevel(logging.INFO)  # also progress, as in the driver
    importlib.import_module("kafkaio.withoutpandas").use_arrow_without_pandas()
    for module in NEEDED:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    from pyspark import daemon
    from pyspark.serializers import read_int

    from deploy.spark.killedworkers import KilledWorkers

    workers = KilledWorkers()
    workers.watch()
    daemon.read_int = workers.asked(read_int)  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()
    try:
        daemon.manager()
    finally:
        gc.unfreeze()  # otherwise DuckDB reports all of its classes as leaked when this process ends
