"""The development broker: its life, its death with its parent, and what it says when something is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.broker.broker import Broker
from deploy.errors import BrokerFailed
from teacup.base.cache import cache_folder
from teacup.spark.errors import MissingTool
from teacup.spark.java import find_java
from tests.support.waiting import wait_until

_PARENT = """
import sys, threading, time
from pathlib import Path
from deploy.broker.broker import Broker
broker = Broker(Path(sys.argv[1]))
starter = threading.Thread(target=broker.start)  # the broker must outlive the thread that started it
starter.start()
starter.join()
print(broker.bootstrap, broker.pid, flush=True)
time.sleep(600)
"""


def topics(broker: Broker) -> set[str]:
    return set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics)


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _stops_answering(admin: AdminClient) -> bool:
    """A signal takes a moment; requests in progress may still be answered."""
    for _ in range(20):
        try:
            admin.list_topics(timeout=0.5)
        except KafkaException:
            return True
    return False


def test_the_broker_dies_with_a_parent_that_is_killed_and_started_again_it_is_the_same(tmp_path: Path) -> None:
    """SIGKILL leaves the parent no chance to clean up; no process may stay behind. Same folder, same address, same
    topics; paused it does not answer, resumed it does."""
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        address, pid_text = parent.stdout.readline().split()
    pid, admin = int(pid_text), AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("kept", 1, 1)], operation_timeout=30)["kept"].result(60)
    keeper = psutil.Process(pid).ppid()

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()

    wait_until(lambda: gone(pid) and gone(keeper), lambda: f"broker {pid} or its keeper {keeper} is still there")
    with Broker(tmp_path) as again:
        assert again.bootstrap == address
        assert "kept" in topics(again)
        again.pause()
        assert _stops_answering(admin)
        again.resume()
        admin.list_topics(timeout=60)
    assert again.pid is None


def test_a_failed_start_shows_why_and_leaves_nothing(tmp_path: Path) -> None:
    """The end of the broker's log is in the message."""
    broker = Broker(tmp_path, {"num.io.threads": "none"})

    with pytest.raises(BrokerFailed, match=r"num\.io\.threads"):
        broker.start()

    assert broker.pid is None


def test_another_port_than_the_folders_is_refused(tmp_path: Path) -> None:
    """The address of a broker is part of its data."""
    (tmp_path / "ports").write_text("20001 20002\n")

    with pytest.raises(BrokerFailed, match="has port 20001, not 20003"):
        Broker(tmp_path, port=20003)


@pytest.mark.parametrize("env", [{"PATH": "/nowhere"}, {"JAVA_HOME": "/nowhere"}], ids=["PATH", "JAVA_HOME"])
def test_missing_java_is_reported_with_how_to_get_it(env: dict[str, str]) -> None:
    """On Debian, on macOS, or by JAVA_HOME."""
    with pytest.raises(MissingTool, match=r"no Java found.*apt-get.*brew.*JAVA_HOME"):
        find_java(env)


def test_old_java_is_refused(tmp_path: Path) -> None:
    """With the version that was found."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)

    with pytest.raises(MissingTool, match="is Java 11"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_the_cache_folder_can_be_named() -> None:
    """`$TEACUP_CACHE`."""
    assert cache_folder({"TEACUP_CACHE": "/somewhere"}) == Path("/somewhere")
