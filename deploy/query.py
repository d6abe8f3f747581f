"""A streaming query until its end: a clean stop by signals, the last batch committed, an exit code for what failed.

SIGINT and SIGTERM create the stop file: nothing more is admitted, the current batch is finished and committed, then the
query is stopped. A second signal stops it at once; the current batch then runs again at the next start.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deploy.accounts import check_whole
from kafkaio.exitcode import ExitCode
from kafkaio.finalerror import final_error_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("teacup")

POLL_S = 0.2

# An error of ours, as it appears in a Python traceback in Spark's message: its class, and the first line of its text.
OURS = re.compile(r"\b(?:datadelay|dedup|deploy|httpapi|joins|kafkaio|storage)(?:\.\w+)*\.([A-Z]\w*): (.+)")

# The exit codes of the errors that have one of their own, the most severe first.
CODES = {
    "DataLoss": ExitCode.DATA_LOSS,
    "OffsetOutOfRange": ExitCode.DATA_LOSS,
    "SpecChanged": ExitCode.CHECKPOINT,
    "OutputTaken": ExitCode.OUTPUT_TAKEN,
    "BatchDiffers": ExitCode.CHECKPOINT,
    "ReceiptRefused": ExitCode.CHECKPOINT,
    "CheckpointUnreadable": ExitCode.CHECKPOINT,
    "StoreChanged": ExitCode.CHECKPOINT,
    "StoreWiped": ExitCode.CHECKPOINT,
    "JobEnded": ExitCode.REFUSED,
    "NoDeadLetterTopic": ExitCode.REFUSED,
    "RecordTooLarge": ExitCode.REFUSED,
    "NotCoPartitioned": ExitCode.NOT_CO_PARTITIONED,
    "KafkaUnavailable": ExitCode.UNREACHABLE,
    "StoreUnreachable": ExitCode.UNREACHABLE,
    "DelayUnreachable": ExitCode.UNREACHABLE,
}


class JobEnded(Exception):
    """A task met a record that no further attempt could deliver; the batch is not committed."""


def summaries_of(frame: DataFrame) -> list[dict[str, Any]]:
    """What the tasks of a batch reported. Raises `AccountsDiffer` if there were tasks, and none reported anything.

    Each summary says how many there must be; without any, only Spark's plan knows. Raises `JobEnded` if a task reports
    why the job must end: an exception in the task itself would make Spark retry it, in vain.
    """
    summaries = [json.loads(row.summary) for row in frame.collect()]
    for one in summaries:
        if (error := final_error_in(one)) is not None:
            raise JobEnded(error)
    if not summaries:
        check_whole([], frame.rdd.getNumPartitions(), "tasks")
    return summaries


def committed(query: StreamingQuery, ended: list[int]) -> bool:
    """The last batch that ran is committed, and none is in progress."""
    progress = query.lastProgress
    status = query.status
    under_way = status["isDataAvailable"] or status["message"].startswith(("Writing offsets", "Processing"))
    return not under_way and (not ended or (progress is not None and progress["batchId"] >= ended[-1]))


@contextmanager
def signals(stop_file: Path, query: StreamingQuery) -> Iterator[threading.Event]:
    asked = threading.Event()

    def stop(number: int, frame: object) -> None:
        if asked.is_set():
            log.warning("stops at once; the batch under way will be run again")
            threading.Thread(target=query.stop, daemon=True).start()
            return
        asked.set()
        log.warning("%s: finishes the batch and stops", signal.Signals(number).name)
        stop_file.touch()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def failed(error: Exception) -> ExitCode:
    """Log why a query failed, and return its exit code.

    What failed in a source or a task is in the text of Spark's error, sometimes among other errors of ours that it
    caused: the most severe of those with an exit code of their own is logged, otherwise the last.
    """
    text = f"{type(error).__module__}.{type(error).__name__}: {error}"
    ours = dict(OURS.findall(text))
    for name in (*CODES, *reversed(ours)):
        if name in ours:
            log.error("%s", ours[name] if name == JobEnded.__name__ else f"{name}: {ours[name]}")
            return CODES.get(name, ExitCode.FAILED)
    log.error("the query failed: %s", _without_java(f"{type(error).__name__}: {error}"))
    return ExitCode.FAILED


def _without_java(text: str) -> str:
    """The last Python traceback in Spark's message, which repeats each several times, among JVM stacks and the plan."""
    words = text.split("\n=== Streaming Query ===")[0]
    words = words[max(words.rfind("Traceback (most recent call last):"), 0) :]
    lines = [line for line in words.splitlines() if not re.match(r"\s+(at |\.\.\. \d+ more| ?SQLSTATE)", line)]
    return "\n".join(lines).strip()
