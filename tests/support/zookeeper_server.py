"""A real ZooKeeper server: its classes are among PySpark's jars."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from kazoo.client import KazooClient

from deploy.broker.lifeline import Lifeline, free_port
from teacup.spark.java import find_java

DEADLINE_S = 60.0


@contextmanager
def running_zookeeper(folder: Path) -> Iterator[str]:
    """Starts a ZooKeeper on a free port with its data in `folder`; yields `host:port`."""
    port = free_port()
    jars = Path(pyspark.__file__).parent / "jars"
    command = [find_java(), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dzookeeper.admin.enableServer=false"]
    command += ["-cp", f"{jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(folder / "data")]
    server = Lifeline(command, folder / "zookeeper.log")
    try:
        _await(port, server, folder)
        yield f"127.0.0.1:{port}"
    finally:
        server.end(10)


def _await(port: int, server: Lifeline, folder: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert server.running(), (folder / "zookeeper.log").read_text()
        assert time.monotonic() < deadline, "ZooKeeper does not listen"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    client = KazooClient(f"127.0.0.1:{port}")
    client.start(DEADLINE_S)
    client.stop()
    client.close()
