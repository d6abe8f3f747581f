"""The session of a job: tasks are retried, never run twice at once, by this interpreter."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from teacup.spark.conf import effective, local_cores, problems, with_attempts
from teacup.spark.errors import SessionRefused
from teacup.spark.session import Session
from tests.support.leftovers import of_session
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("given", "master"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,8]", "local[2,8]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_a_local_master_tries_tasks_again(given: str, master: str) -> None:
    """Spark's own default there is to fail with the first failed task."""
    assert with_attempts(given) == master


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[2]", 2),
        ("local[*]", 16),
        ("local[6,4]", 6),
        ("local-cluster[2,1,1024]", None),
        ("yarn", None),
    ],
)
def test_a_local_master_has_so_many_cores(master: str, cores: int | None) -> None:
    assert local_cores(master, 16) == cores


def test_the_users_properties_go_over_ours() -> None:
    """Except that a local master always gets its attempts."""
    properties = effective({"master": "local[3]", "spark.ui.enabled": "true", "spark.x": "1"})

    assert properties["spark.master"] == "local[3,4]"
    assert properties["spark.ui.enabled"] == "true"
    assert properties["spark.x"] == "1"
    assert properties["spark.sql.session.timeZone"] == "UTC"
    assert "master" not in properties


def test_addresses_are_only_set_where_all_is_one_machine() -> None:
    """Workers elsewhere could not reach a driver at 127.0.0.1."""
    assert effective({"master": "local[2]"})["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in effective({"master": "spark://host:7077"})


@pytest.mark.parametrize(
    "given",
    [
        {"spark.task.maxFailures": "1"},
        {"master": "local[2,1]"},
        {"master": "mesos://host"},
        {"driver.memory": "1g"},
        {"master": "local", "spark.master": "local"},
    ],
)
def test_what_would_break_the_join_is_refused(given: dict[str, str]) -> None:
    """By name, before a JVM is started."""
    assert len(list(problems(given))) == 1
    if "driver.memory" not in given:
        with pytest.raises(SessionRefused, match=next(iter(problems(given)))[0]):
            Session("refused", given)


def test_speculation_is_refused_without_transactions() -> None:
    """Both copies of a task would write their rows; in transactions the second one fences the first."""
    given = {"spark.speculation": "true"}

    assert list(problems(given)) == []
    with pytest.raises(SessionRefused, match="speculation='true': "):
        Session("refused", given)
    assert effective(given)["spark.speculation.minTaskRuntime"] == "30s"


_SESSION = """
import json, logging, signal, subprocess, sys, time
from pyspark.sql.datasource import DataSource
from teacup.spark.session import Session
class Source(DataSource):
    pass
def ours(*_): pass
signal.signal(signal.SIGINT, ours)
session = Session("probe", {"master": "local[2]"}, rows_in_jvm=False)
spark = session.spark
spark.dataSource.register(Source)
ran = subprocess.run(["ps", "-ewwo", "sid,args"], capture_output=True, text=True, check=True).stdout
def where(batches):
    import pyarrow, sys
    for _ in batches:
        yield pyarrow.RecordBatch.from_pydict({"path": [sys.executable]})
path = spark.range(0, 1, 1, 1).mapInArrow(where, "path string").first().path
conf = dict(spark.sparkContext.getConf().getAll())
zone = spark.conf.get("spark.sql.session.timeZone")
signals = signal.getsignal(signal.SIGINT) is ours
print(json.dumps({"path": path, "master": conf["spark.master"], "zone": zone, "signals": signals, "ran": ran}))
logging.basicConfig()
logging.getLogger("teacup").setLevel(logging.DEBUG)
session.warm_up()
at_most_s = time.monotonic() + 20  # a busy machine may miss it
while time.monotonic() < at_most_s and not session.spark.sparkContext.statusTracker().getActiveJobsIds():
    time.sleep(0.005)
session.close()
"""


_STRANGERS = re.compile(r"^.* TransportChannelHandler: .*\n.*Too large frame.*\n(\s+at .*\n)*", re.MULTILINE)
"""What Spark says of a client that takes its port for another server's: a Kafka client whose broker had it before."""


def test_a_session_is_that_of_the_job_and_quiet(plain_java: None) -> None:
    """In a process of its own, as in `teacup run`.

    Workers are this interpreter. Signals are left to the job: PySpark would end it with a traceback. No Python looks
    for installed data sources: it takes three processes, one after the other, before a job's own source is registered.
    Standard error has no banner and no Spark warnings, also if the session is closed while it starts workers: their
    tasks end first, otherwise each of them would report that Spark is gone, with a stack.
    """
    pipe = subprocess.PIPE
    job = subprocess.Popen(
        [sys.executable, "-c", _SESSION], stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    out, errors = job.communicate()

    assert _STRANGERS.sub("", errors) == ""
    found = json.loads(out)
    ours = [line for line in found.pop("ran").splitlines() if line.split()[:1] == [str(job.pid)]]
    assert found == {"path": sys.executable, "master": "local[2,4]", "zone": "UTC", "signals": True}
    assert [line for line in ours if "pyspark.daemon" in line] == []
    assert any("SparkSubmit" in line for line in ours)


_UNUSED = """
import sys, time
from teacup.spark.session import Session
session = Session("probe", {"master": "local[1]"})
time.sleep(float(sys.argv[1]))
session.close()
print(session._jvm._process.returncode, flush=True)  # of the JVM; it would end by itself, too, but later
sys.stdin.read()
"""


@pytest.mark.parametrize(
    "after_s", [pytest.param("0", marks=pytest.mark.slow), "0.3", pytest.param("4", marks=pytest.mark.slow)]
)
def test_a_session_that_is_not_used_ends_at_once_and_shows_nothing(plain_java: None, after_s: str) -> None:
    """A job that must not run: its error is the only line. What `spark-submit` runs before the JVM ends, too."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", _UNUSED, after_s]

    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as job:
        assert job.stdout is not None
        code = int(job.stdout.readline())
        wait_until(lambda: set(of_session(job.pid)) == {job.pid})  # programs beside the JVM are killed, not awaited
        _, errors = job.communicate()

    assert code == -signal.SIGKILL
    assert errors == ""


_KILLED = """
import tempfile
from pathlib import Path
from teacup.spark.session import Session
from tests.support.waiting import wait_until
temporary = Path(tempfile.gettempdir())
session = Session("probe", {"master": "local[1]"})
wait_until(lambda: [*temporary.glob("**/spark-*-*-*-*-*")])  # Spark's own, by a UUID
session.close()
print(session._jvm._process.returncode)
"""


def test_a_jvm_that_is_killed_leaves_no_temporary_folder_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the job is stopped while it waits for brokers: the JVM would remove its own only if it ended by itself."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, check=True)

    assert int(done.stdout) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("teacup-cache-")] == []


_REFUSED = """
from teacup.spark.errors import JvmEnded
from teacup.spark.session import Session
session = Session("probe", {"master": "local[1]", "spark.driver.memory": "much"})
try:
    session.spark
except JvmEnded as ended:
    print(ended)
session.close()
"""


def test_why_a_jvm_did_not_start_is_shown() -> None:
    """By itself, on standard error."""
    done = subprocess.run([sys.executable, "-c", _REFUSED], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("Spark's JVM ended with exit code 1 before it answered")
    assert "Invalid maximum heap size: -Xmxmuch" in done.stderr


def test_a_session_that_is_active_must_be_valid_as_it_is() -> None:
    """Spark does not take another number of attempts any more."""
    active = {"spark.master": "local[1]", "spark.app.id": "app-1"}

    with pytest.raises(SessionRefused, match=r"spark\.master='local\[1\]'.*give local\[1,4\]"):
        Session("refused", active)


_TOO_LATE = """
from pyspark.sql import SparkSession
from teacup.spark.errors import SessionRefused
from teacup.spark.session import Session
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    Session("probe", {}).spark
except SessionRefused as refused:
    print(refused)
"""


@pytest.mark.slow
def test_an_active_session_without_retries_is_refused() -> None:
    """It is used as it is, so it must be valid as it is."""
    done = subprocess.run([sys.executable, "-c", _TOO_LATE], capture_output=True, text=True, check=True)

    assert "spark.master='local[1]': tasks are never retried; give local[1,4]" in done.stdout
