"""Whole runs of the collector: broker, API server, positions of all kinds, and the crontab's line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from datadelay.model import DelayState
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.conftest import TopicFactory
from tests.datadelay.collector.runs import Run, of_group, read, write
from tests.support.delay_server import RunningServer
from tests.support.stepped import Stepped, produce
from tests.support.transactions import BASE_MS

REPOSITORY = Path(__file__).parents[3]


def test_the_crontabs_line_publishes_the_delay_of_a_stepped_consumer(
    server: RunningServer,
    settings: dict[str, Any],
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
    tmp_path: Path,
) -> None:
    """The line from deploy/manifests, in a shell with cron's minimal environment; the token comes from its env file."""
    topic = topic_factory(2)
    produce(kafka, topic, [BASE_MS, BASE_MS + 7_000])
    consumer = stepped(topic)
    consumer.read(0, 1)
    write(
        tmp_path,
        {**settings, "consumers": [of_group(consumer, topic)], "api": {**settings["api"], "token": "${TOKEN}"}},
    )
    (tmp_path / "collector.env").write_text(f"export TOKEN={server.secrets['writer']}\n")

    behind_code = as_cron(server, tmp_path)
    behind = read(server, topic)
    consumer.read(0, 1)
    done_code = as_cron(server, tmp_path)
    done = read(server, topic)

    assert (behind_code, done_code) == (0, 0)
    assert behind.state is DelayState.OK
    assert behind.consumed_until_ms == BASE_MS + 6_000
    assert behind.partitions is not None
    assert [report.position for report in behind.partitions] == [1, None]
    assert done.state is DelayState.CAUGHT_UP
    assert done.consumed_until_ms == done.listed_ms - 10_000


def as_cron(server: RunningServer, folder: Path) -> int:
    """Runs the crontab's line with files in `folder`, and with `teacup` on the PATH."""
    crontab = (REPOSITORY / "deploy" / "manifests" / "crontab.example").read_text().splitlines()
    line = next(line for line in crontab if line.startswith("* * * * * "))
    command = line.removeprefix("* * * * * ").replace("/etc/teacup", str(folder))
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    teacup = bin_folder / "teacup"
    teacup.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from deploy.cli.app import app\napp()\n"
    )
    teacup.chmod(0o755)
    server.clock.now_ms = wall_ms() + 1_000
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(folder), "SHELL": "/bin/sh"}
    done = subprocess.run(
        ["/bin/sh", "-c", command], env=environment, cwd="/", capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout + done.stderr == "" or done.returncode != 0, "cron would mail: " + done.stderr
    return done.returncode


def test_positions_of_all_kinds_give_the_same_value(
    run: Run,
    server: RunningServer,
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
    zookeeper: str,
    tmp_path: Path,
) -> None:
    """A consumer group, a Spark checkpoint and a Storm spout at the same record of the same topic."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS, BASE_MS + 7_000])
    consumer = stepped(topic)
    consumer.read(0, 1)
    for name, text in {
        "metadata": '{"id":"one"}',
        "offsets/0": "v1\n{}\n" + json.dumps({topic: {"0": 1}}),
        "commits/0": "v1\n{}",
    }.items():
        (tmp_path / "spark" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "spark" / name).write_text(text)
    root = f"/run-{uuid.uuid4().hex[:8]}"
    client = KazooClient(zookeeper)
    client.start(30)
    client.create(f"{root}/s/partition_0", json.dumps({"offset": 1, "topic": topic}).encode(), makepath=True)
    client.stop()
    client.close()

    code = run(
        of_group(consumer, topic, name="group"),
        {
            **of_group(consumer, topic, name="spark"),
            "positions": {"from": "checkpoint", "location": f"{tmp_path}/spark"},
        },
        {
            **of_group(consumer, topic, name="storm"),
            "positions": {"from": "zookeeper", "hosts": zookeeper, "root": root, "consumer_id": "s"},
        },
    )

    assert code == ExitCode.DONE
    found = {name: read(server, topic, name) for name in ("group", "spark", "storm")}
    assert {delay.consumed_until_ms for delay in found.values()} == {BASE_MS + 6_000}
    assert len({delay.generation for delay in found.values()}) == 3


def test_a_topic_that_fails_is_unknown_and_hides_no_other(
    run: Run,
    server: RunningServer,
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
) -> None:
    """Its reason is submitted; the exit code says that something is unknown."""
    topic = topic_factory()
    consumer = stepped(topic)
    consumer.commit(0, 0)

    code = run(of_group(consumer, "no-such-topic", topic))

    assert code == ExitCode.UNKNOWN
    assert read(server, topic).state is DelayState.CAUGHT_UP
    missing = read(server, "no-such-topic")
    assert missing.state is DelayState.UNKNOWN
    assert missing.reason is not None
    assert "no topic 'no-such-topic'" in missing.reason


def test_an_outage_is_unknown_and_over_with_the_next_run(
    run: Run,
    server: RunningServer,
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
) -> None:
    """It does not look like a consumer that started over: the value is accepted again at once."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS])
    consumer = stepped(topic)
    consumer.commit(0, 0)
    before = run(of_group(consumer, topic))

    during = run({**of_group(consumer, topic), "positions": {"from": "checkpoint", "location": "/no/such/folder"}})
    unknown = read(server, topic)
    after = run(of_group(consumer, topic))

    assert (before, during, after) == (ExitCode.DONE, ExitCode.UNKNOWN, ExitCode.DONE)
    assert unknown.state is DelayState.UNKNOWN
    assert unknown.reason is not None
    assert "/no/such/folder" in unknown.reason
    assert read(server, topic).consumed_until_ms == BASE_MS - 1_000


def test_a_store_of_a_new_generation_is_unknown(
    run: Run,
    server: RunningServer,
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
) -> None:
    """What the consumer fed is gone: its partition watermark says nothing about the new store until it is beyond the
    old."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS, BASE_MS + 9_000])
    consumer = stepped(topic)
    consumer.commit(0, 0)
    answers = ["first", "second", "second"]

    with generations(answers) as url:
        fed = of_group(consumer, topic, store={"url": url})
        codes = [run(fed), run(fed)]
        wiped = read(server, topic)
        consumer.commit(0, 1)
        codes.append(run(fed))
    codes.append(run(fed))

    assert codes == [ExitCode.DONE, ExitCode.UNKNOWN, ExitCode.DONE, ExitCode.UNKNOWN]
    assert wiped.reason is not None
    assert "of the store (first -> second)" in wiped.reason
    gone = read(server, topic).reason
    assert gone is not None
    assert re.search(r"generation of the store at http://\S+: Connection refused", gone)


def test_a_generation_that_no_submission_can_carry_makes_the_topic_unknown(
    run: Run,
    server: RunningServer,
    kafka: dict[str, str],
    topic_factory: TopicFactory,
    stepped: Callable[[str], Stepped],
) -> None:
    """The store may answer anything; the topic has its outcome all the same."""
    topic = topic_factory()
    produce(kafka, topic, [BASE_MS])
    consumer = stepped(topic)
    consumer.commit(0, 0)

    with generations(["a\0"]) as url:
        code = run(of_group(consumer, topic, store={"url": url}))

    assert code == ExitCode.UNKNOWN
    assert "store_generation" in (read(server, topic).reason or "")


class generations:
    """A server that answers with one generation after another."""

    def __init__(self, answers: list[str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"generation": answers.pop(0)}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Logs nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}/namespaces/right"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
