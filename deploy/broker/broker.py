"""A single-node Kafka for development, tests and benchmarks: KRaft, in its own folder, on free ports.

    with Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap})

The folder keeps the log, the ports and the settings, so that a broker started on it again is the same broker at the
same address. Without a folder a temporary one is created, and removed when the broker is closed. The process dies with
ours (`deploy.broker.lifeline`).
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.broker.jars import LOG_CONFIG, fetch_jars
from deploy.broker.lifeline import HOST, Lifeline, free_port, is_free
from deploy.errors import BrokerFailed
from teacup.spark.java import find_java

START_DEADLINE_S = 300.0  # alone it takes seconds; on a machine that is busy with other things minutes
STOP_GRACE_S = 30.0
_CLUSTER_ID = "teacupDevelopmentKafka"  # 22 characters of base64: what Kafka accepts as a UUID
_MEMORY = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")

# One node holds every replica; the rest shortens a developer's waits.
_DEFAULTS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FORWARDED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "100",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",  # a killed broker cannot come back before that
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.initial.task.delay.ms": "1000",
    "log.retention.ms": "-1",  # event times of tests and demos lie in the past; a topic may set its own
    "log.retention.check.interval.ms": "10000",
}


class Broker:
    """A broker process; a context manager that starts and closes it.

    `properties` override our defaults and go into `server.properties` in the folder. If a broker has run in the folder
    before, its `port` is reused, otherwise free ones are chosen.

    forwarded_from   a port from which something forwards to the broker (a tunnel, a proxy): the broker also listens at
                     `forwarded_port`, and clients that connect there are referred to `forwarded_from`
    """

    def __init__(
        self,
        folder: Path | None = None,
        properties: Mapping[str, str] | None = None,
        *,
        port: int | None = None,
        forwarded_from: int | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="teacup-broker-") if folder is None else None
        self.folder = Path(self._temporary.name) if self._temporary else Path(folder or "").absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.controller_port = self._ports(port)
        self._properties = dict(properties or {})
        self._forwarded_from = forwarded_from
        self.forwarded_port = free_port()
        self._process: Lifeline | None = None

    @property
    def bootstrap(self) -> str:
        """The value for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The Java process; None if it is not running."""
        return self._process.pid if self._process and self._process.running() else None

    @property
    def log_file(self) -> Path:
        """What the broker logs."""
        return self.folder / "broker.log"

    def start(self) -> None:
        """Starts the broker, and waits until it answers. Raises `BrokerFailed`, `MissingTool`, `JarsNotFetched`."""
        if self.pid is not None:
            raise BrokerFailed(f"the broker in {self.folder} is running already (pid {self.pid})")
        java, jars = find_java(), fetch_jars()
        server = self._write_properties()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java, jars, server)
        command = [java, *_MEMORY, *self._java_options(jars), "kafka.Kafka", str(server)]
        self._process = Lifeline(command, self.folder / "broker.out")
        try:
            self._await_answer()
        except BaseException:  # even an impatient Ctrl-C must not leave a broker behind
            self.kill()
            raise

    def stop(self) -> None:
        """Stops the broker cleanly (SIGTERM; killed after 30 s). It can be started again."""
        if self._process is not None:
            self._process.end(STOP_GRACE_S)
            self._process = None

    def kill(self) -> None:
        """Kills the broker (SIGKILL), as if the machine died. It can be started again."""
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Pauses the broker (SIGSTOP): connections stay open, nothing answers."""
        self._running().signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resumes the broker (SIGCONT) after `pause`."""
        self._running().signal(signal.SIGCONT)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the process to end by itself; returns whether it has ended."""
        try:
            self._running().wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Stops the broker; with a temporary folder, kills it and removes the folder."""
        if self._temporary is None:
            self.stop()
        else:
            self.kill()
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> Lifeline:
        if self._process is None or not self._process.running():
            raise BrokerFailed(f"the broker in {self.folder} does not run")
        return self._process

    def _ports(self, wanted: int | None) -> tuple[int, int]:
        """Returns the ports of broker and controller. They are kept in the folder, because its metadata names them."""
        ports_file = self.folder / "ports"
        if ports_file.exists():
            port, controller = (int(word) for word in ports_file.read_text().split())
            if wanted not in (None, port):
                raise BrokerFailed(f"the broker in {self.folder} has port {port}, not {wanted}; take a new folder")
            return port, controller
        if wanted is not None and not is_free(wanted):
            raise BrokerFailed(
                f"port {wanted} is in use: end what listens there (`ss -ltnp 'sport = :{wanted}'` names it), or give "
                "another port (`--port`, or leave it out for a free one)"
            )
        ports = (wanted or free_port(), free_port())
        ports_file.write_text(f"{ports[0]} {ports[1]}\n")
        return ports

    def _write_properties(self) -> Path:
        settings = server_settings(
            self.folder / "data",
            self.port,
            self.controller_port,
            None if self._forwarded_from is None else (self.forwarded_port, self._forwarded_from),
        )
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**settings, **self._properties}.items()))
        return path

    def _java_options(self, jars: Path) -> list[str]:
        return [
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={LOG_CONFIG}",
            f"-Dteacup.broker.log={self.log_file}",
            "-cp",
            f"{jars}/*",
        ]

    def _format(self, java: str, jars: Path, server: Path) -> None:
        command = [
            java,
            "-XX:TieredStopAtLevel=1",
            *self._java_options(jars),
            "kafka.tools.StorageTool",
            "format",
        ]
        command += ["--cluster-id", _CLUSTER_ID, "--config", str(server)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise BrokerFailed(f"cannot format {self.folder}:\n{(done.stdout + done.stderr).strip()}")

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._listens():
            self._check_alive(deadline)
            time.sleep(0.05)
        # librdkafka's own complaints while the broker starts are not worth a line.
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        while True:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=2.0).brokers:
                    return
            self._check_alive(deadline)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex((HOST, self.port)) == 0

    def _check_alive(self, deadline: float) -> None:
        code = self._process.exit_code() if self._process else None
        if code is not None:
            raise BrokerFailed(f"the broker ended with code {code} while starting; {self.tail()}")
        if time.monotonic() > deadline:
            raise BrokerFailed(f"the broker did not answer on {self.bootstrap} in time; {self.tail()}")

    def tail(self) -> str:
        """Returns the end of the broker's log, for an error message."""
        lines: list[str] = []
        for path in (self.folder / "broker.out", self.log_file):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-20:]
        return f"the end of {self.log_file}:\n" + "\n".join(lines)


def run_broker(folder: Path | None, port: int | None) -> None:
    """Runs a broker in the foreground: prints its address, stops on Ctrl-C or SIGTERM.

    Raises `BrokerFailed` if the broker ends by itself.
    """
    asked_to_stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: asked_to_stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with Broker(folder, port=port) as broker:
            sys.stdout.write(f"Kafka on {broker.bootstrap}, folder {broker.folder}; Ctrl-C stops it\n")
            sys.stdout.flush()
            while not asked_to_stop.wait(0.2):
                if broker.pid is None:
                    raise BrokerFailed(f"the broker ended by itself; {broker.tail()}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def server_settings(data: Path, port: int, controller_port: int, forwarded: tuple[int, int] | None) -> dict[str, str]:
    """Returns all settings of a broker whose log is in the folder `data`.

    forwarded   a port where it also listens, and the port that clients are referred to there; None: there is none
    """
    listeners = {"PLAINTEXT": port, "CONTROLLER": controller_port}
    advertised = {"PLAINTEXT": port}
    if forwarded is not None:
        listeners["FORWARDED"], advertised["FORWARDED"] = forwarded
    return {
        **_DEFAULTS,
        "listeners": _comma(listeners),
        "advertised.listeners": _comma(advertised),
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": str(data),
    }


def _comma(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
