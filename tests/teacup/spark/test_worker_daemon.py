"""What the workers' daemon imports before it forks them."""

from __future__ import annotations

import subprocess
import sys

from pyspark import cloudpickle

from joins.plan.reader import JoinControl
from joins.plan.source import TicketReader
from teacup.spark.jvm_errors import summary_rows
from teacup.spark.stream_reader import pickled
from tests.support.making import join_spec

AS_A_WORKER = """
import importlib, pickle, sys
from teacup.spark.worker_daemon import NEEDED
from teacup.base.process import use_arrow_without_pandas
use_arrow_without_pandas()
for module in NEEDED:
    importlib.import_module(module)
known = set(sys.modules)
read = pickle.load(sys.stdin.buffer)
pickle.loads(read.__self__.stage)
import pyarrow
pyarrow.array(["a", None])
print(*sorted(set(sys.modules) - known))
"""


def test_a_worker_imports_nothing_more_for_a_task() -> None:
    """Each would import it again, and scan it after every task for garbage."""
    reader = TicketReader(join_spec(), JoinControl(), pickled(lambda ticket: summary_rows([ticket])))

    done = subprocess.run(
        [sys.executable, "-c", AS_A_WORKER],
        input=cloudpickle.dumps(reader.read),
        capture_output=True,
        check=True,
    )

    assert [module for module in done.stdout.split() if not module.startswith(b"pyarrow.")] == []


def test_the_daemon_ends_without_a_word() -> None:
    """When Spark closes its standard input; DuckDB listed its classes as leaked."""
    command = [sys.executable, "-m", "teacup.spark.worker_daemon", "pyspark.worker"]

    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)

    assert done.stdout, "it has not come to listen"
    assert done.stderr == b""
