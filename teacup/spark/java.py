"""This machine's Java, and Spark's JVM as a process of ours.

The JVM starts in the background and can be ended at any moment. PySpark's own start returns only once the JVM answers,
two seconds later; meanwhile a job looks at Kafka. A job that must not run ends the JVM at once, and nothing of it is
seen. The JVM has a process group of its own, so that Ctrl-C and signals to the job's group do not reach it: the job
stops it once the batch in progress is committed. It ends by itself when its standard input does.

Its SPARK_HOME, for masters on this machine, is the installed PySpark without the zipped copy of its own Python sources.
Spark puts `$SPARK_HOME/python/lib/pyspark.zip` at the front of the path of every Python process it starts. The zip
contains no compiled code, so each Python process that Spark starts compiles PySpark again, for half a second. In this
home the zip is missing, and they import the installed package, which is the same. `local-cluster` writes into
`$SPARK_HOME/work`, which no property changes, so it gets a temporary home of its own.

MLlib is missing there, too: each session registers its functions, which no SQL expression can call, by Scala's
reflection. That takes half a second of a start with the archive of classes, and over a second without. If a user's own
classes need MLlib, `spark.jars` or a SPARK_HOME provides it.

It loads Spark's classes from their archive, if that was written (`teacup.spark.class_archive`).
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import importlib.metadata
import logging
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from teacup.base.cache import cache_folders, cached
from teacup.base.logs import logs_json
from teacup.base.scratch import ScratchFolder
from teacup.spark import conf
from teacup.spark.errors import JvmEnded, MissingTool

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

log = logging.getLogger("teacup.spark.jvm")
"""Logs what the JVM and the workers below it write to standard error, a line each, if the job logs JSON."""

MINIMUM_JAVA = 17
_HOW = (
    f"Teacup needs Java {MINIMUM_JAVA} or newer. Debian, Ubuntu: "
    "apt-get install openjdk-17-jre-headless; macOS: "
    "brew install openjdk@17; or set JAVA_HOME to the one you have."
)


def java_of(env: Mapping[str, str] = os.environ) -> str:
    """Returns the `java` of `JAVA_HOME`, else of the `PATH`, of any version; raises `MissingTool` if there is none."""
    home = env.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=env.get("PATH"))
    if java is None or not Path(java).exists():
        raise MissingTool(f"no Java found ({f'JAVA_HOME={home}' if home else 'PATH has no java'}). {_HOW}")
    return java


def find_java(env: Mapping[str, str] = os.environ) -> str:
    """Finds Java as `java_of` does and asks for its version; raises `MissingTool` unless that is 17 or newer."""
    java = java_of(env)
    # In a session of its own, as a signal to the job's group would otherwise end it and look like a broken Java.
    printed = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, start_new_session=True)
    version = re.search(r'version "(\d+)', printed.stderr + printed.stdout)
    if printed.returncode != 0 or version is None:
        raise MissingTool(f"{java} -version prints no version: {printed.stderr.strip()!r}. {_HOW}")
    if int(version[1]) < MINIMUM_JAVA:
        raise MissingTool(f"{java} is Java {version[1]}. {_HOW}")
    return java


def check_java() -> None:
    """Checks what a Spark session needs of this machine, before anything is claimed. Raises `MissingTool`.

    Under `spark-submit` a JVM is already running.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        find_java()
        check_user()


def check_user() -> None:
    """Checks that the user has a name, as Spark's file system does not start without. Raises `MissingTool`."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        raise MissingTool(
            f"user {os.getuid()} has no name on this machine, and Spark does not start without: add it to /etc/passwd, "
            "or run as a user who is there (in a container: the image's own user; under systemd's DynamicUser install "
            "libnss-systemd, or name a User)"
        ) from None


_LEFT_OUT = "spark-mllib_"


def use_spark_home(env: MutableMapping[str, str] = os.environ, *, shared: bool = True) -> None:
    """Sets SPARK_HOME in `env` unless it is already set; call it before the JVM is started.

    shared   whether the home may be the cached one; if not, or without a cache, it is removed when this process ends
    """
    if "SPARK_HOME" in env:
        return
    if shared:
        for cache in cache_folders():
            with suppress(OSError):
                env["SPARK_HOME"] = str(spark_home(cache / "spark-home"))
                return
    folder = Path(tempfile.mkdtemp(prefix="teacup-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    env["SPARK_HOME"] = str(spark_home(folder))


def spark_home(folder: Path) -> Path:
    """Returns the home of the installed PySpark in `folder`, created if it does not exist yet. Raises `OSError`.

    It is either there as a whole or not at all, and never changes: Java lists `jars` in the folder's own order, and
    does not use an archive of classes that was written with another order.
    """
    distribution = importlib.metadata.distribution("pyspark")
    installed = Path(str(distribution.locate_file("pyspark"))).resolve()
    digest = hashlib.sha256(f"{installed} without {_LEFT_OUT}".encode()).hexdigest()[:12]
    home = folder / f"{distribution.version}-{digest}"
    jars = sorted(jar for jar in (installed / "jars").glob("*.jar") if not jar.name.startswith(_LEFT_OUT))
    if not home.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="writing-") as unfinished:
            made = Path(unfinished) / home.name
            (made / "jars").mkdir(parents=True)
            for part in (installed / "bin", installed / "sbin", *jars):
                (made / part.relative_to(installed)).symlink_to(part)
            with suppress(OSError):  # another process has just made it
                made.rename(home)
    parts = [home / "bin" / "spark-submit", *(home / "jars" / jar.name for jar in jars)]
    missing = [part for part in parts if not part.is_file()]
    if missing:
        log.warning(
            "%s is not used, as %s is missing: delete the folder, and the next start makes it again", home, missing[0]
        )
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(missing[0]))
    return home


# Java 17 maps the archive at another address than it was written for: all of it is then read, changed and so copied. At
# its own address only the parts in use are read, and most of these are not copied.
_MAPPED = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
# A different training run, or other jars, mean a different archive.
_SOURCE_OF_CLASSES = f"a batch of one row, no {_LEFT_OUT}"


def archive_options() -> tuple[str, ...]:
    """Returns the JVM's options for the archive of this Spark and this Java; none if it was not written."""
    if cached(_ARCHIVES) is None:
        return ()
    archive = cached(archive_name())
    return () if archive is None else (f'"-XX:SharedArchiveFile={archive}"', _MAPPED, SILENT)


_ARCHIVES = "jvm"


def archive_name() -> str:
    """Returns the archive's name in a cache. Raises `MissingTool` without Java, which Spark needs anyway."""
    java = java_of()
    spark = importlib.metadata.distribution("pyspark")
    installed = Path(str(spark.locate_file("pyspark"))).resolve()
    source = f"{Path(java).resolve()} {installed} {_SOURCE_OF_CLASSES}"
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    return f"{_ARCHIVES}/spark-{spark.version}-{digest}.jsa"


NO_PYTHON = "/dev/null/python"
"""A program that does not exist. With it Spark does not look for data sources among the installed packages, which takes
three processes, one after the other; our workers are started by `PYSPARK_PYTHON`."""
_POLL_EVERY_S = 0.02
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


class Jvm:
    """Spark's JVM, started with `spark-submit` as PySpark does. Its standard error is shown from `connect` on.

    It has a folder of its own for temporary files, below TMPDIR (which Java ignores), as a killed JVM removes nothing.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Starts a JVM with these Spark properties."""
        from pyspark.find_spark_home import _find_spark_home

        self._folder = ScratchFolder("jvm")
        self._address = self._folder.path / "address"
        command = [str(Path(_find_spark_home()) / "bin" / "spark-submit")]
        java = f'"-Djava.io.tmpdir={self._folder.path}" {properties.get(JAVA_OPTIONS, "")}'
        for key, value in {**properties, JAVA_OPTIONS: java.strip()}.items():
            command += ["--conf", f"{key}={value}"]
        command += shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        env = {
            **own_address(properties),
            **os.environ,
            "PYTHONSAFEPATH": "1",  # a folder `deploy` where the job was started is not ours
            "SPARK_CONNECT_MODE": "0",
            "PYSPARK_DRIVER_PYTHON": NO_PYTHON,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address),
        }
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stderr=pipe, env=env, process_group=0)
        self._as_json = logs_json(properties)
        self._shown = threading.Thread(target=self._show, name="jvm-errors", daemon=True)
        self._gateway: JavaGateway | None = None

    def connect(self) -> None:
        """Waits until the JVM answers, and makes it PySpark's. Raises `JvmEnded`."""
        from pyspark import SparkContext
        from pyspark.java_gateway import launch_gateway

        self._shown.start()
        while not self._address.exists():
            if self._process.poll() is not None:
                self._shown.join()
                how = how_ended(self._process.returncode)
                raise JvmEnded(f"Spark's JVM {how} before it answered: its own lines above say why")
            time.sleep(_POLL_EVERY_S)
        address = self._address.read_bytes()  # each number has four bytes: the port, the length of the secret
        port, secret = int.from_bytes(address[:4]), address[8:].decode()
        with _environment({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=self._gateway)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def ended(self, within_s: float) -> JvmEnded | None:
        """Returns how it ended, if it ends within this time."""
        try:
            code = self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        return JvmEnded(f"Spark's JVM (process {self._process.pid}) {how_ended(code)}. {CONTINUES}")

    def close(self, within_s: float) -> None:
        """Ends it at once if it is not connected; otherwise kills it after `within_s`. It has ended on return."""
        assert self._process.stdin is not None
        assert self._process.stderr is not None
        if self._gateway is None:
            self._kill()
        else:
            from pyspark import SparkContext

            self._gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None  # no public call makes PySpark forget a JVM that has ended
        self._process.stdin.close()
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._kill()
        if self._shown.is_alive():
            self._shown.join(within_s)
        self._process.stderr.close()
        self._folder.close()

    def _kill(self) -> None:
        """Kills it, including the programs that `spark-submit` runs first."""
        if self.runs:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _show(self) -> None:
        assert self._process.stderr is not None
        for text in (line.decode(errors="replace") for line in self._process.stderr):
            if _SAYS_NOTHING.search(text):
                continue
            if self._as_json:
                log.warning("%s", text.rstrip("\n"))
            else:
                sys.stderr.write(text)
                sys.stderr.flush()


def own_address(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns a variable with which a JVM on a local master looks up no host name: a container may not resolve it."""
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if conf.is_local(properties["spark.master"]) else {}


_SAYS_NOTHING = re.compile("Using incubator modules|^SLF4J: ")  # from every JVM, and from the S3 driver


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables for the time of a `with` block."""
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]


AGAINST_LACK_OF_MEMORY = (
    "Against lack of memory (`dmesg`, or a container's `OOMKilled`, tells): fewer tasks at once (`spark.master`), a "
    "smaller `records_per_batch`, or more memory"
)
CONTINUES = f"Nothing is lost: start the job again. {AGAINST_LACK_OF_MEMORY}"


def how_ended(code: int) -> str:
    """Returns how a process ended, by its return code as `subprocess` gives it: negative ones are signals.

    Who sent a signal cannot be known; when memory runs out the kernel sends SIGKILL.
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    if code == -signal.SIGKILL:
        return f"was killed by {name}, by the kernel for lack of memory unless somebody did"
    return f"was killed by {name}"
