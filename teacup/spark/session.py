"""The Spark session of a job: our properties, this interpreter for the workers, a quiet log.

The JVM starts as soon as the session is made, and whatever needs no Spark is done meanwhile.

Under `spark-submit` the JVM and its properties already exist: its command line overrides the job file, and an active
session is used as it is. Wherever the session comes from, its effective properties are checked.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from teacup.base.logs import AS_JSON, NO_JOB
from teacup.base.process import JOBS, begun
from teacup.spark import conf
from teacup.spark.cluster import Executors, ExecutorWatch, check_master
from teacup.spark.errors import JvmEnded, MasterUnreachable, SessionRefused, StartFailed
from teacup.spark.java import JAVA_OPTIONS, Jvm, archive_options, use_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger("teacup")

LOG_CONFIG = Path(__file__).parent / "log4j2.properties"
LOG_CONFIG_JSON = LOG_CONFIG.with_name("log4j2-json.properties")

# The JVM handles only tickets and summaries, so its second compiler costs more CPU, taken from the join, than it ever
# saves. About 60 MB of its heap are live; by default the heap starts with a 64th of the machine's memory, fills a
# quarter of that before the first collection, and grows far beyond what is live. Not used if rows pass through Spark's
# own expressions.
_LIGHT_JVM = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-Xms64m", "-Xmn32m", "-XX:MinHeapFreeRatio=10", "-XX:MaxHeapFreeRatio=20"),
)
JVM_ENDS_WITHIN_S = 10.0
JVM_DIES_WITHIN_S = 1.0  # after its connections are closed


class Session:
    """A Spark session, and its JVM if that is started here: `close` leaves no process behind.

    The JVM starts at once, in the background; the session is created when it is first asked for.
    """

    def __init__(
        self,
        name: str,
        spark: Mapping[str, str],
        *,
        rows_in_jvm: bool = True,
        exactly_once: bool = False,
        jobs: int = 1,
    ) -> None:
        """Prepares a job's session. `spark` has `master` and any `spark.*`. Raises `SessionRefused`, `MissingTool`,
        `MasterUnreachable`.

        rows_in_jvm   False: only tickets and summaries pass through the JVM, which is then tuned to start faster
        exactly_once  whether rows are written in transactions, so that `spark.speculation` is harmless
        jobs          how many share it
        """
        _refuse({key: str(value) for key, value in spark.items()}, exactly_once)
        submitted = _submitted()
        self._name, self._exactly_once, self._rows_in_jvm = name, exactly_once, rows_in_jvm
        self._properties = _properties({**spark, **submitted}, rows_in_jvm)
        if jobs > 1:
            self._properties[f"spark.executorEnv.{JOBS}"] = os.environ[JOBS] = str(jobs)
        if submitted:
            self._properties.setdefault("spark.log.level", "WARN")  # that JVM has already read another configuration
        elif conf.is_one_machine(self._properties["spark.master"]):
            use_spark_home(shared=conf.is_local(self._properties["spark.master"]))
        starts = not submitted and not _runs_already()
        if starts:
            check_master(self._properties["spark.master"])
        self._jvm = Jvm(self._properties) if starts else None
        self._spark: SparkSession | None = None
        self._executors: ExecutorWatch | None = None
        self._warming: threading.Thread | None = None

    @property
    def spark(self) -> SparkSession:
        """Waits for the JVM the first time. Raises `SessionRefused`, `JvmEnded`."""
        if self._spark is None:
            # In a thread: a context of the main thread takes SIGINT from the job, and stops it with a traceback.
            self._spark = begun(self._created).result()
            self._executors = ExecutorWatch(self._spark)
            self._executors.now()  # if there are none, they are missing from now on
        return self._spark

    def executors(self) -> Executors:
        """Returns how many executors it has, looked up at most once a second."""
        self.spark  # noqa: B018 - there are none before it
        assert self._executors is not None
        return self._executors.now()

    def warm_up(self) -> None:
        """Starts a Python worker in the background while the first batch is being planned, as both take seconds.

        Others are forked, in no time, once a batch has several tasks. Idle workers take turns with batches of one task,
        so with a single worker each batch finds what the last one has left open.
        """
        spark = self.spark

        def run() -> None:
            try:
                if self._rows_in_jvm:
                    spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id bigint").collect()
                else:  # loads none of SQL's classes, which take 50 MB and as much time as the rest of a start
                    spark.sparkContext.parallelize([0], 1).map(int).collect()
            except Exception as error:  # noqa: BLE001 - nothing depends on it, and the first batch would report it
                log.debug("workers were not started in advance: %s", error)

        self._warming = threading.Thread(target=run, name="warm-up", daemon=True)
        self._warming.start()

    def give_up(self) -> None:
        """Called when a job has ended for lack of executors; alone, nothing follows (`deploy.jobs.many_jobs`)."""

    @property
    def gone(self) -> bool:
        """Whether its JVM was started here and has ended."""
        return self._jvm is not None and not self._jvm.runs

    def ended(self) -> JvmEnded | None:
        """Returns how its JVM ended, if it did, once Spark has failed. None also if it was not started here."""
        return None if self._jvm is None else self._jvm.ended(JVM_DIES_WITHIN_S)

    def close(self, within_s: float = JVM_ENDS_WITHIN_S) -> None:
        """Stops Spark. A JVM that was started here is killed after `within_s`, and has ended when this returns."""
        if self._warming is not None and self._warming.is_alive():
            if (self._jvm is None or self._jvm.runs) and self.executors().count == 0:
                self.spark.sparkContext.cancelAllJobs()  # they would wait for ever
            self._warming.join(within_s)  # its tasks would report the end of Spark as errors
        if self._spark is not None and (self._jvm is None or self._jvm.runs):
            self._spark.stop()
        if self._jvm is not None:
            self._jvm.close(within_s)

    def _created(self) -> SparkSession:
        from py4j.protocol import Py4JJavaError
        from pyspark.sql import SparkSession

        if self._jvm is not None:
            self._jvm.connect()
        builder = SparkSession.builder.appName(self._name)
        for key, value in self._properties.items():
            builder = builder.config(key, value)
        try:
            session = builder.getOrCreate()
        except Py4JJavaError as error:  # the text is Java's, and available only while the JVM is
            raise start_failed(self._properties["spark.master"], java_reason(str(error))) from None
        _refuse(dict(session.sparkContext.getConf().getAll()), self._exactly_once)
        accumulators = session.sparkContext._accumulatorServer
        accumulators.handle_error = _connection_ended  # type: ignore[method-assign,assignment]
        return session


def start_failed(master: str, reason: str) -> StartFailed:
    """Returns the error for a failed start of Spark. If no master took the application, Java names only the effects."""
    if master.startswith("spark://") and "stopped SparkContext" in reason:
        return MasterUnreachable(
            f"Spark's master {master} did not take the job: what accepts connections there is no master (its pages are "
            "at another port), is of another version, or does not answer: correct `spark.master`"
        )
    return StartFailed(f"Spark did not start: {reason}")


def java_reason(text: str) -> str:
    """Returns the last cause in an error of Java's, without its stack: the line that says what is wrong."""
    causes = re.findall(r"^(?:Caused by|:)\s*:?\s*(.+)$", text, re.MULTILINE)
    return str(causes[-1]) if causes else text.partition("\n")[0]


def _connection_ended(request: object, address: object) -> None:
    """Replaces a traceback on standard error. This happens only if the JVM ends by itself, which the job reports."""
    log.debug("Spark's JVM has closed the connection for accumulators", exc_info=True)


def _properties(given: Mapping[str, str], rows_in_jvm: bool) -> dict[str, str]:
    """Returns all properties; also makes Spark use this process's interpreter."""
    properties = conf.effective({k: v for k, v in given.items() if not (k == "master" and "spark.master" in given)})
    properties[JAVA_OPTIONS] = _java_options(properties, rows_in_jvm)
    local = conf.is_local(properties["spark.master"])
    if local or not (os.environ.get("PYSPARK_PYTHON") or properties.get("spark.pyspark.python")):
        # Spark would start workers with plain `python3`. On a cluster the path is on another machine, so the user's
        # setting counts.
        os.environ["PYSPARK_PYTHON"] = properties["spark.pyspark.python"] = sys.executable
    return properties


def _runs_already() -> bool:
    """Returns whether this process has a JVM."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def _refuse(properties: Mapping[str, str], exactly_once: bool) -> None:
    sparks = {k: v for k, v in properties.items() if k == "master" or k[:6] == "spark."}
    refused = [*conf.problems(sparks), *(() if exactly_once else conf.speculation_problems(sparks))]
    problems = [f"{key}={properties[key]!r}: {what}" for key, what in refused]
    master = properties.get("spark.master", "")
    if master != conf.with_attempts(master) and "spark.app.id" in properties:  # of a context that is already running
        problems.append(f"spark.master={master!r}: tasks are never retried; give {conf.with_attempts(master)}")
    if problems:
        raise SessionRefused("; ".join(problems))


def _submitted() -> dict[str, str]:
    """Returns the properties of the `spark-submit` that runs this process; none without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkContext
    from pyspark.conf import SparkConf

    SparkContext._ensure_initialized()  # spark-submit leaves them in the JVM's system properties
    return dict(SparkConf().getAll())


def _java_options(properties: Mapping[str, str], rows_in_jvm: bool) -> str:
    """Puts our options first, as the JVM takes the last of an option that is given twice."""
    configs, job = [LOG_CONFIG], properties.get(f"spark.executorEnv.{AS_JSON}")
    if job is not None:  # the second one overrides parts of the first
        configs.append(LOG_CONFIG_JSON)
    log_options = [f'"-Dlog4j2.configurationFile={",".join(config.as_uri() for config in configs)}"']
    if job is not None:
        log_options.append(f'"-Dteacup.job={"" if job == NO_JOB else job}"')
    ours = [*log_options, *(() if rows_in_jvm else _LIGHT_JVM)]
    archive = archive_options() if conf.is_local(properties["spark.master"]) else ()
    return " ".join([*ours, *archive, properties.get(JAVA_OPTIONS, "")]).strip()


def check_interpreter(spark: SparkSession) -> None:
    """Checks the Python with which a session that is not ours starts workers on this machine. Raises `SessionRefused`.

    PySpark takes the first `python3` of PATH, which is another one where no environment is activated.
    """
    context = spark.sparkContext
    interpreter = shutil.which(context.pythonExec)
    if not conf.is_one_machine(str(context.master)) or (
        interpreter and Path(interpreter).parent == Path(sys.executable).parent
    ):
        return
    if interpreter is not None:
        tried = subprocess.run(
            [interpreter, "-c", "import joins, pyarrow"], capture_output=True, text=True, check=False
        )
        if tried.returncode == 0:
            return
    raise SessionRefused(
        f"Spark would start its workers with {interpreter or context.pythonExec!r}, which lacks teacup-joins: set "
        'os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts'
    )
