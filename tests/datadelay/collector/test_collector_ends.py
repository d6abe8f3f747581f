"""How a run of the collector ends: exit codes, the lock, and the deadline."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from datadelay.collector.reports import failed_submission
from datadelay.model import DelayState
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.datadelay.collector.runs import Run, of_group, read, write
from tests.support import storage_server
from tests.support.delay_server import RunningServer
from tests.support.dictbackend import DictBackend
from tests.support.stepped import Stepped

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("broken", [{"url": "http://127.0.0.1:9"}, {"token": "a-token-that-nobody-knows"}])
def test_an_api_that_does_not_take_it_has_its_code(
    run: Run,
    settings: dict[str, Any],
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
    broken: dict[str, str],
) -> None:
    """Unreachable, or refusing: nothing can be published, readers will see stale."""
    topic = topic_factory()

    assert run(of_group(stepped(topic), topic), api={**settings["api"], **broken}) == ExitCode.UNREACHABLE


def test_the_address_of_another_api_is_a_mistake_in_the_configuration(
    run: Run,
    settings: dict[str, Any],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No later run would fare better."""
    topic = topic_factory()

    with storage_server.running_server(DictBackend(), namespaces=[{"name": "right"}]) as other:
        code = run(of_group(stepped(topic), topic), api={**settings["api"], "url": other.url})

    assert code == ExitCode.BAD_JOB_FILE
    assert "Data Delay API; correct `api.url`" in caplog.text


def test_a_topic_that_the_api_refuses_keeps_no_other_from_it(
    run: Run, server: RunningServer, topic_factory: TopicFactory, stepped: Callable[[str], Stepped]
) -> None:
    """Here a newer submission of the first one came before; the run has the code of a refusal nevertheless."""
    refused, taken = stepped(topic_factory()), stepped(topic_factory())
    server.clock.now_ms = wall_ms() + 60_000
    newer = failed_submission(
        consumer="first", topic=refused.topic, listed_ms=wall_ms() + 50_000, reason="newer", before=None
    )
    server.client("writer").submit(newer)

    code = run(of_group(refused, refused.topic, name="first"), of_group(taken, taken.topic, name="next"), parallel=1)

    assert code == ExitCode.UNREACHABLE
    assert read(server, taken.topic, "next").listed_ms is not None


def test_a_second_run_does_nothing_while_the_first_holds_the_lock(
    run: Run,
    settings: dict[str, Any],
    server: RunningServer,
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
) -> None:
    """And the lock is free as soon as the first ends."""
    topic = topic_factory()
    consumer = stepped(topic)
    consumer.commit(0, 0)
    with Path(settings["lock_file"]).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        code = run(of_group(consumer, topic))
        published = server.client("reader").list()

    assert code == ExitCode.LOCKED
    assert published == ()
    assert run(of_group(consumer, topic)) == ExitCode.DONE


def test_a_topic_that_is_not_done_by_the_deadline_is_unknown(
    run: Run, server: RunningServer, topic_factory: TopicFactory, stepped: Callable[[str], Stepped]
) -> None:
    """The thread that looks at it is not waited for."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = of_group(stepped(topic_factory()), "far", kafka=at(silent))
        code = run(hanging, deadline="1s")

    assert code == ExitCode.DEADLINE
    far = read(server, "far")
    assert far.state is DelayState.UNKNOWN
    assert far.reason is not None
    assert "the collector's deadline of 1 s" in far.reason


def at(listener: socket.socket) -> dict[str, str]:
    return {"bootstrap.servers": f"127.0.0.1:{listener.getsockname()[1]}"}


@pytest.mark.slow
def test_a_broker_that_never_answers_ends_with_the_deadline(
    server: RunningServer,
    settings: dict[str, Any],
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
    tmp_path: Path,
) -> None:
    """The process ends although one of its threads hangs; the other topic has its value, the hanging one is unknown."""
    topic = topic_factory()
    consumer = stepped(topic)
    consumer.commit(0, 0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hanging = of_group(consumer, "far", name="far", kafka=at(silent))
        path = write(tmp_path, {**settings, "consumers": [hanging, of_group(consumer, topic)], "deadline": "20s"})
        server.clock.now_ms = wall_ms() + 1_000
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                f"import sys; from datadelay.collector.run import collect; sys.exit(collect({PATH}))",
            ],
            env={**os.environ, "COLLECTOR_YAML": str(path)},
            cwd=REPOSITORY,
            timeout=120,
            check=False,
        )

    assert done.returncode == ExitCode.DEADLINE
    assert read(server, topic).state is DelayState.CAUGHT_UP
    far = read(server, "far", "far")
    assert far.reason is not None
    assert far.reason.startswith("Kafka at 127.0.0.1:")
    assert far.reason.endswith("is slow or unreachable: not done within the collector's deadline of 20 s")


PATH = "__import__('pathlib').Path(__import__('os').environ['COLLECTOR_YAML'])"
