"""Aerospike servers of a test's own, each in a folder: TEACUP_ASD names the server's binary."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import aerospike
import pytest

from deploy.broker.lifeline import free_port
from tests.support.waiting import wait_until

BINARY = "TEACUP_ASD"
NAMESPACE = "test"
NEEDS_ASD = pytest.mark.skipif(
    BINARY not in os.environ, reason=f"no server to test Aerospike on: set {BINARY}=/path/to/asd"
)

_CONFIG = """
service {{
    run-as-daemon false
    work-directory {folder}/work
    cluster-name teacup-{cluster}
    node-id {node_id}
    proto-fd-max 1024
    migrate-threads 8
}}
mod-lua {{
    user-path {folder}/work/usr/udf/lua
}}
logging {{
    console {{
        context any info
    }}
}}
network {{
    service {{
        address 127.0.0.1
        access-address 127.0.0.1
        port {port}
    }}
    admin {{
        address 127.0.0.1
        port {admin}
    }}
    heartbeat {{
        mode mesh
        address 127.0.0.1
        port {heartbeat}
{seeds}
        interval 150
        timeout 10
    }}
    fabric {{
        address 127.0.0.1
        port {fabric}
    }}
}}
namespace {namespace} {{
    replication-factor {copies}
    nsup-period 1
    index-stage-size 128M
    storage-engine {storage}
}}
"""
_IN_MEMORY = "memory {\n        data-size 512M\n    }"
_ON_A_FILE = "device {{\n        file {folder}/data\n        filesize 256M\n    }}"


class AerospikeProcess:
    """One node, which may be killed and started again; it keeps ports and folder."""

    def __init__(
        self,
        folder: Path,
        on_a_file: bool = False,
        copies: int = 1,
        peers: Sequence[AerospikeProcess] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder, self._copies = folder, copies
        self._environment = {**os.environ, **(environment or {})}
        self.port, self.heartbeat, self._admin, self._fabric = (free_port() for _ in range(4))
        self._storage = _ON_A_FILE.format(folder=folder) if on_a_file else _IN_MEMORY
        self._peers = peers
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """As a store."""
        return f"aerospike://127.0.0.1:{self.port}/{NAMESPACE}"

    def start(self) -> None:
        """Returns once it answers as a cluster."""
        for name in ("work/smd", "work/usr/udf/lua"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        heartbeats = [self.heartbeat, *(peer.heartbeat for peer in self._peers)]
        config = _CONFIG.format(
            folder=self._folder,
            cluster=(*self._peers, self)[0].heartbeat,
            node_id=f"A{self.port}",
            port=self.port,
            admin=self._admin,
            heartbeat=self.heartbeat,
            seeds="\n".join(f"        mesh-seed-address-port 127.0.0.1 {port}" for port in heartbeats),
            fabric=self._fabric,
            namespace=NAMESPACE,
            copies=self._copies,
            storage=self._storage,
        )
        (self._folder / "aerospike.conf").write_text(config)
        command = [os.environ[BINARY], "--foreground", "--config-file", str(self._folder / "aerospike.conf")]
        with (self._folder / "aerospike.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)
        wait_until(self._is_up)

    def kill(self) -> None:
        """With SIGKILL."""
        self.end(signal.SIGKILL)

    def end(self, with_signal: int = signal.SIGTERM) -> None:
        """Returns once it is gone."""
        assert self._process is not None
        self._process.send_signal(with_signal)
        self._process.wait(60)
        self._process = None

    def stop(self) -> None:
        """At the end of a test."""
        if self._process is not None:
            self.kill()

    def wipe(self) -> None:
        """It loses everything, and goes on."""
        with self.client() as client:
            client.truncate(NAMESPACE, None, 0)

    def set(self, **settings: str) -> None:
        """Of the namespace, at run time; with _ for -."""
        with self.client() as client:
            for name, value in settings.items():
                request = f"set-config:context=namespace;id={NAMESPACE};{name.replace('_', '-')}={value}"
                for failure, answer in client.info_all(request).values():
                    assert failure is None
                    assert answer.strip().lower().endswith("ok"), answer

    def says(self, request: str) -> str:
        """The answers of all nodes that it knows, one after the other; empty if there are none."""
        try:
            with self.client() as client:
                return "".join(str(answer) for _, answer in client.info_all(request).values())
        except aerospike.exception.AerospikeError:
            return ""

    def settled(self, nodes: int) -> bool:
        """Whether so many nodes are one cluster, and nothing migrates."""
        answers = self.says(f"cluster-stable:size={nodes};ignore-migrations=false;namespace={NAMESPACE}")
        return bool(answers) and "ERROR" not in answers

    @contextmanager
    def client(self) -> Iterator[aerospike.Client]:
        """A look at the server past the back end."""
        client = aerospike.client({"hosts": [("127.0.0.1", self.port)], "connect_timeout": 5_000})
        try:
            yield client
        finally:
            client.close()

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "aerospike.log").read_text()[-3000:]
        answers = self.says("cluster-stable:ignore-migrations=true")
        return bool(answers) and "ERROR" not in answers


@contextmanager
def aerospike_process(
    folder: Path, *, on_a_file: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[AerospikeProcess]:
    """One node, started, and killed in the end."""
    process = AerospikeProcess(folder, on_a_file=on_a_file, environment=environment)
    try:
        process.start()
        yield process
    finally:
        process.stop()


@contextmanager
def aerospike_cluster(folder: Path, nodes: int, copies: int) -> Iterator[list[AerospikeProcess]]:
    """Nodes in memory that are one cluster, killed in the end."""
    running: list[AerospikeProcess] = []
    try:
        for number in range(nodes):
            running.append(AerospikeProcess(folder / str(number), copies=copies, peers=tuple(running)))
            running[-1].start()
        wait_until(lambda: running[0].settled(nodes), within_s=240)
        yield running
    finally:
        for process in running:
            process.stop()
