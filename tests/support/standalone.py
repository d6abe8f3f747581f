"""A Spark standalone cluster on this machine: a master and a worker, in processes of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from deploy.dev.broker import free_port

_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


@contextmanager
def standalone(folder: Path, cores: int = 2) -> Iterator[str]:
    """The URL of its master. folder: for its log and the work of its executors."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    port = str(free_port())
    url, common = f"spark://127.0.0.1:{port}", ["--webui-port", "0"]
    worker = [url, "--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / "work"), *common]
    with (folder / "cluster.log").open("w") as log:
        running = [
            subprocess.Popen([spark_class, *args], stdout=log, stderr=subprocess.STDOUT)
            for args in ([_MASTER, "--host", "127.0.0.1", "--port", port, *common], [_WORKER, *worker])
        ]
        try:
            yield url
        finally:
            for one in reversed(running):
                one.terminate()
                one.wait(30)
