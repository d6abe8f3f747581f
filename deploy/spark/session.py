"""The Spark session of a job: our properties, this interpreter for the workers, a quiet log.

Under `spark-submit` the JVM and its properties already exist: what was given on its command line overrides the job
file, and an active session is used as it is. Wherever the session comes from, its effective properties are checked.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING, TypeVar

from deploy.errors import JvmEnded, SessionRefused
from deploy.spark import conf as sparkconf
from deploy.spark.home import use_spark_home
from deploy.spark.jvmoptions import archive_options
from deploy.spark.killed import CONTINUES, how_ended

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession

T = TypeVar("T")

log = logging.getLogger("teacup")

LOG_CONFIG = Path(__file__).parent / "log4j2.properties"

# The JVM handles only tickets and summaries, so its second compiler costs more CPU, taken from the join, than it ever
# saves. About 50 MB of its heap live; by default the heap starts with a 64th of the machine's memory, and a quarter of
# that is filled before the first collection. Not used if rows pass through Spark's own expressions.
_LIGHT_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m", "-Xmn32m")
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
JVM_ENDS_WITHIN_S = 10.0
JVM_DIES_WITHIN_S = 1.0  # after its connections are closed


class Session:
    """A Spark session, and its JVM if that was started here: `close` leaves no process behind.

    The JVM has a process group of its own, so that Ctrl-C and signals to the job's group do not reach it: the job stops
    it, once the batch in progress is committed.
    """

    def __init__(
        self, name: str, spark: Mapping[str, str], *, rows_in_jvm: bool = True, exactly_once: bool = False
    ) -> None:
        """For the job `name`; `spark` holds `master` and any `spark.*`. Raises `SessionRefused`.

        rows_in_jvm   False: only tickets and summaries pass through the JVM, which is then tuned to start faster
        exactly_once  whether rows are written in transactions, so that `spark.speculation` is harmless
        """
        self.spark, self._gateway = _in_thread(lambda: _session(name, spark, rows_in_jvm, exactly_once))
        self._warming: threading.Thread | None = None

    def warm_up(self) -> None:
        """Start a Python worker in the background while the query is being planned: both take seconds.

        Others are forked, in no time, once a batch has several tasks. A batch of one is carried out by an idle worker,
        by each in turn: with a single one it finds what the last batch has left open.
        """

        def run() -> None:
            try:
                self.spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id bigint").collect()
            except Exception as error:  # noqa: BLE001 - nothing depends on it, and the first batch would report it
                log.debug("workers were not started in advance: %s", error)

        self._warming = threading.Thread(target=run, name="warm-up", daemon=True)
        self._warming.start()

    def ended(self) -> JvmEnded | None:
        """To be asked once Spark has failed: how its JVM ended, if it did. None also if it was not started here."""
        if self._gateway is None:
            return None
        jvm: Popen[bytes] = self._gateway.proc
        try:
            code = jvm.wait(JVM_DIES_WITHIN_S)
        except TimeoutExpired:
            return None
        return JvmEnded(f"Spark's JVM (process {jvm.pid}) {how_ended(code)}. {CONTINUES}")

    def close(self, within_s: float = JVM_ENDS_WITHIN_S) -> None:
        """Stop Spark; a JVM that was started here has ended when this returns: after `within_s` it is killed."""
        if self._warming is not None:
            self._warming.join(within_s)  # its tasks would report the end of Spark as errors
        if self._gateway is None or self._gateway.proc.poll() is None:
            self.spark.stop()
        if self._gateway is None:
            return
        from pyspark import SparkContext

        self._gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None  # no public call makes PySpark forget a JVM that has ended
        jvm: Popen[bytes] = self._gateway.proc
        assert jvm.stdin is not None
        jvm.stdin.close()  # it ends by itself when this pipe does
        try:
            jvm.wait(within_s)
        except TimeoutExpired:
            jvm.kill()
            jvm.wait()


def _in_thread(start: Callable[[], T]) -> T:
    """A context that is created in the main thread takes SIGINT from the job, and stops it with a traceback."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(start())
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
            outcome.set_exception(error)

    threading.Thread(target=run, name="spark-start", daemon=True).start()
    return outcome.result()


def _session(
    name: str, spark: Mapping[str, str], rows_in_jvm: bool, exactly_once: bool
) -> tuple[SparkSession, JavaGateway | None]:
    """And the connection to its JVM, if that was started here."""
    _refuse({key: str(value) for key, value in spark.items()}, exactly_once)
    submitted = _submitted()
    given = {**spark, **submitted}
    properties = sparkconf.effective(
        {k: v for k, v in given.items() if not (k == "master" and "spark.master" in given)}, rows_in_jvm=rows_in_jvm
    )
    if submitted:
        properties.setdefault("spark.log.level", "WARN")  # that JVM has already read another log configuration
    properties[_JAVA_OPTIONS] = _java_options(properties, rows_in_jvm)
    _use_this_interpreter(properties)
    if not submitted and sparkconf.is_one_machine(properties["spark.master"]):
        use_spark_home(shared=sparkconf.is_local(properties["spark.master"]))
    gateway = None if submitted else _start_jvm(properties)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in properties.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    _refuse(dict(session.sparkContext.getConf().getAll()), exactly_once)
    session.sparkContext._accumulatorServer.handle_error = _connection_ended  # type: ignore[method-assign,assignment]
    return session, gateway


def _connection_ended(request: object, address: object) -> None:
    """Instead of a traceback on standard error: it happens only if the JVM ends by itself, which the job reports."""
    log.debug("Spark's JVM has closed the connection for accumulators", exc_info=True)


def _start_jvm(properties: Mapping[str, str]) -> JavaGateway | None:
    """None if one runs in this process already."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return None
    conf = SparkConf(loadDefaults=False).setAll(list(properties.items()))
    with _environment("PYTHONSAFEPATH", "1"):  # a folder `deploy` where the job was started is not ours
        gateway: JavaGateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    return gateway


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """For processes that are started meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _refuse(properties: Mapping[str, str], exactly_once: bool) -> None:
    sparks = {k: v for k, v in properties.items() if k == "master" or k[:6] == "spark."}
    refused = [*sparkconf.problems(sparks), *(() if exactly_once else sparkconf.speculation_problems(sparks))]
    problems = [f"{key}={properties[key]!r}: {what}" for key, what in refused]
    master = properties.get("spark.master", "")
    if master != sparkconf.with_attempts(master) and "spark.app.id" in properties:  # of a context that runs already
        problems.append(f"spark.master={master!r}: tasks are never retried; give {sparkconf.with_attempts(master)}")
    if problems:
        raise SessionRefused("; ".join(problems))


def _submitted() -> dict[str, str]:
    """The properties of the `spark-submit` that runs this process; none without it."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkContext
    from pyspark.conf import SparkConf

    SparkContext._ensure_initialized()  # spark-submit leaves them in the JVM's system properties
    return dict(SparkConf().getAll())


def _java_options(properties: Mapping[str, str], rows_in_jvm: bool) -> str:
    """Ours first: if an option is given twice, the JVM takes the last."""
    ours = [f'"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"', *(() if rows_in_jvm else _LIGHT_JVM)]
    archive = archive_options() if sparkconf.is_local(properties["spark.master"]) else ()
    return " ".join([*ours, *archive, properties.get(_JAVA_OPTIONS, "")]).strip()


def _use_this_interpreter(properties: dict[str, str]) -> None:
    """Spark starts its workers with plain `python3` by default: on this machine they must use our interpreter.

    On a cluster the path is on another machine, so the user's setting counts: `PYSPARK_PYTHON` or
    `spark.pyspark.python`.
    """
    local = sparkconf.is_local(properties["spark.master"])
    if local or not (os.environ.get("PYSPARK_PYTHON") or properties.get("spark.pyspark.python")):
        os.environ["PYSPARK_PYTHON"] = properties["spark.pyspark.python"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = properties["spark.pyspark.driver.python"] = sys.executable
