"""Spark properties of a job: ours below, the user's on top; those that would break the join are refused. Pure.

    speculation   two attempts at a ticket run at once. With exactly once this is safe: like any retry, the copy fences
                  the attempt that it replaces before it reads what is in the output. This also makes that attempt's
                  work worthless, so a copy only helps if a task hangs: our minimum time is 30 s. Without transactions
                  both write their rows, so it is refused. (Spark does not run a copy on the first attempt's host.)
    no retries    a task that fails once (a broker that moves, a worker that dies) would end the job, so a local master
                  is given a number of attempts: `local[2]` becomes `local[2,4]`

Each of our properties has its purpose beside it; their effect on start-up was measured one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

TASK_ATTEMPTS = 4
PLANS_KEPT = "spark.sql.streaming.minBatchesToRetain"
DEFAULT_MASTER = "local[*]"
_LOCAL = re.compile(r"^local(?:\[\s*(\*|[1-9][0-9]*)\s*(?:,\s*([0-9]+)\s*)?\])?$")
_MASTERS = "local[N], local[*], spark://host:port, yarn or k8s://https://host:port"

_DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",  # half a second of start, and a port
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",  # `teacup unjoined` says how many tasks a shuffle has
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),  # rows may have 100 KB, and there may be thousands
    PLANS_KEPT: "100",  # Spark's name for what we do ourselves (`teacup.spark.batches.log`)
    "spark.python.daemon.module": "teacup.spark.worker_daemon",  # imports once what every worker needs
    "spark.executorEnv.MALLOC_ARENA_MAX": "1",  # each thread's own heap would keep what it has freed: 170 MB per worker
    "spark.python.worker.reuse": "true",  # windows and consumers live in the workers
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",  # as that sets it: with another environment, jobs of RDDs
    # would have a daemon and workers of their own
    "spark.shuffle.reduceLocality.enabled": "false",  # behind a shuffle tasks run where windows are, not most data
    "spark.task.maxFailures": str(TASK_ATTEMPTS),
    "spark.speculation.minTaskRuntime": "30s",  # if the user has enabled speculation
}
_LOCAL_DEFAULTS: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",  # looking up the host name can take seconds, or fail
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "3650d",  # the driver is its only executor: if the clock jumps by
    # more than two minutes, Spark takes it for lost, and logs an error every ten seconds
}


def effective(given: Mapping[str, str]) -> dict[str, str]:
    """Returns all properties of a session, including `spark.master`; `given` (`master`, `spark.*`) overrides ours."""
    master = master_of(given)
    ours = {**_DEFAULTS, **(_LOCAL_DEFAULTS if is_local(master) else {})}
    users = {key: value for key, value in given.items() if key != "master"}
    return {**ours, **users, "spark.master": with_attempts(master)}


def master_of(given: Mapping[str, str]) -> str:
    """Returns the master that properties name."""
    return given.get("master", given.get("spark.master", DEFAULT_MASTER))


def is_local(master: str) -> bool:
    """Returns whether driver and executor are one process."""
    return master.startswith("local") and not master.startswith("local-cluster")


def local_cores(master: str, machine: int) -> int | None:
    """Returns how many tasks run at once on a local master; None if that is up to a cluster.

    machine   the number of this machine's cores, of which `local[*]` takes all
    """
    match = _LOCAL.match(master)
    if match is None:
        return None
    return machine if match[1] == "*" else int(match[1] or 1)


def is_one_machine(master: str) -> bool:
    """Returns whether every process runs here, including those of `local-cluster`."""
    return master.startswith("local")


def with_attempts(master: str) -> str:
    """Adds a number of attempts per task to `local[n]`, as Spark never retries there without it."""
    match = _LOCAL.match(master)
    if match is None or match[2] is not None:
        return master
    return f"local[{match[1] or 1},{TASK_ATTEMPTS}]"


def problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each refused property, and what is allowed instead."""
    for key, value in given.items():
        if key != "master" and not key.startswith("spark."):
            yield key, "not a Spark property: give `master`, or a name that begins with `spark.`"
        elif key == "spark.task.maxFailures" and not (value.isdecimal() and int(value) > 1):
            yield key, "give 2 or more: a task that fails must be tried again, or one lost connection ends the job"
        elif key in ("master", "spark.master"):
            yield from _master_problems(key, value)
    if "master" in given and "spark.master" in given:
        yield "spark.master", "is given as well as `master`; give one of them"


def speculation_problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields what is refused if rows are not written in transactions."""
    if given.get("spark.speculation", "false").lower() != "false":
        yield (
            "spark.speculation",
            "only false is allowed without transactions: a task would run twice at once, and write its rows twice; "
            "with `delivery: exactly-once` it may be true",
        )


def _master_problems(key: str, master: str) -> Iterator[tuple[str, str]]:
    if not master.startswith(("local", "spark://", "k8s://")) and master != "yarn":
        yield key, f"give {_MASTERS}"
    elif is_local(master):
        match = _LOCAL.match(master)
        if match is None:
            yield key, f"give {_MASTERS}"
        elif match[2] is not None and int(match[2]) < 2:
            yield key, f"a task must be tried again: give local[{match[1]}] or local[{match[1]},{TASK_ATTEMPTS}]"
