"""The log of the processes that Spark starts; a line like an earlier one is suppressed for a minute, and counted."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import subprocess
import sys
import threading
import time

import pytest

from deploy.broker.lifeline import free_port
from teacup.base import logs
from teacup.base.logs import AS_JSON, PERIOD_S, Sparse, formatter, mention, shape
from teacup.base.times import iso
from teacup.kafka import client

PLANS = """
import logging
from pyspark.sql.types import StructType
from teacup.spark.stream_source import stream_source

stream_source("test", "x", "n int", lambda: None)({}).streamReader(StructType())
logging.getLogger("teacup.of.a.planner").warning("it waits")
"""
WORKS = """
import logging, runpy
import pyspark.daemon

pyspark.daemon.manager = lambda: logging.getLogger("teacup.of.a.worker").warning("it waits")
runpy.run_module("teacup.spark.worker_daemon", run_name="__main__")
"""


@pytest.mark.parametrize("process", [PLANS, WORKS], ids=["planning", "working"])
def test_a_line_has_its_time_and_its_level(process: str) -> None:
    """As the driver's, between which it stands."""
    done = subprocess.run([sys.executable, "-c", process], capture_output=True, text=True, check=True, timeout=120)

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING it waits\n", done.stderr)


@pytest.mark.parametrize("process", [PLANS, WORKS], ids=["planning", "working"])
def test_a_line_is_json_where_the_drivers_are(process: str) -> None:
    """The driver says so in the environment."""
    env = {**os.environ, AS_JSON: "1"}
    done = subprocess.run(
        [sys.executable, "-c", process], env=env, capture_output=True, text=True, check=True, timeout=120
    )

    line = json.loads(done.stderr)
    assert (line["event"], line["level"], line["message"]) == ("log", "warning", "it waits")


def line_of(message: str) -> str:
    record = logging.LogRecord("teacup.x", logging.WARNING, "x.py", 1, "%s", (message,), None)
    return formatter(as_json=True).format(record)


@pytest.mark.parametrize("message", ["a {", "{", "{no json}", '{"a": 1', '"text"', "[1]", "1", ""])
def test_a_text_becomes_the_message_of_an_object(message: str) -> None:
    """Also one that only looks like JSON."""
    assert json.loads(line_of(message))["message"] == message


def test_an_object_keeps_its_members() -> None:
    """A deduplicator logs each change of its state as one."""
    line = json.loads(line_of('{"event": "deduplicator", "at_ms": 5}'))

    assert (line["event"], line["at_ms"], line["level"]) == ("deduplicator", 5, "warning")


def test_a_line_says_what_was_mentioned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job and generation, once they are known; and when it was written, also for people."""
    monkeypatch.setattr(logs, "_mentioned", {})
    mention(job="clicks")
    mention(generation="a1b2")

    line = json.loads(line_of("it waits"))

    assert (line["job"], line["generation"], line["time"]) == ("clicks", "a1b2", iso(line["at_ms"]))


def test_text_on_a_terminal_wraps_between_words() -> None:
    """At its width when the line is written; what is longer alone stays whole."""
    record = logging.LogRecord("teacup.x", logging.WARNING, "x.py", 1, "%s", ("word " * 30 + "h" * 60,), None)

    lines = formatter(as_json=False, width=lambda: 50).format(record).splitlines()

    assert all(len(line) <= 50 for line in lines[:-1])
    assert lines[-1].strip() == "h" * 60
    assert [line.startswith(" ") for line in lines] == [False] + [True] * (len(lines) - 1)


def test_librdkafka_does_not_say_what_happens_at_many_starts() -> None:
    """A coordinator loads its part of a topic for a moment, and is asked again."""
    usual = (
        "GETPID [teacup#producer-3] [thrd:main]: Failed to acquire idempotence PID from broker 127.0.0.1:9092/1: "
        "Broker: Coordinator load in progress: retrying"
    )
    kept = Kept()
    client.librdkafka.addHandler(kept)
    try:
        for line in (usual, usual.replace("Coordinator load in progress", "Transactional Id authorization failed")):
            client.librdkafka.warning("%s", line)
    finally:
        client.librdkafka.removeHandler(kept)

    assert len(kept.lines) == 1
    assert "authorization failed" in kept.lines[0]


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("F [x#producer-1] [thrd:a]: h:9/1: y (after 3ms)", "F [x#producer-2] [thrd:b]: h:9/1: y (after 0ms)", True),
        ("10.0.0.1:9092/1: refused", "10.0.0.2:9092/2: refused", False),
        ("host-1:9092: refused", "host-2:9092: refused", False),
        ("3 requests timed out", "12 requests timed out", True),
        ("/tmp/right-0-4-8.slice is ignored", "/tmp/right-0-8-16.slice is ignored", True),
        ("FAIL a", "ERROR a", False),
    ],
)  # fmt: skip
def test_lines_are_the_same_when_they_differ_only_in_numbers(one: str, other: str, same: bool) -> None:
    """The client, its thread and a duration do not matter; the broker does."""
    assert (shape(one) == shape(other)) is same


def test_the_same_line_passes_once_per_period_and_says_how_many_were_held_back() -> None:
    """Each level and each shape separately."""
    now_s = [0.0]
    kept, log = Kept(), logging.Logger("test")
    log.addHandler(kept)
    log.addFilter(Sparse(clock=lambda: now_s[0]))

    for second in range(130):
        now_s[0] = float(second)
        log.warning("%s is down, try %d", "a", second)
        if second == 5:
            log.error("a is down, try %d", second)
            log.warning("b is down, try %d", second)

    assert kept.lines == [
        "a is down, try 0",
        "a is down, try 5",
        "b is down, try 5",
        f"a is down, try 60 (and {PERIOD_S - 1:.0f} like it since)",
        f"a is down, try 120 (and {PERIOD_S - 1:.0f} like it since)",
    ]


def test_with_an_endless_period_each_line_passes_once() -> None:
    """As short-lived commands want it, whose output cron mails."""
    kept, log = Kept(), logging.Logger("test")
    log.addHandler(kept)
    kept.addFilter(Sparse(period_s=math.inf))

    for attempt in range(1_000):
        log.error("connection refused (after %d ms)", attempt)
    log.error("certificate has expired (after 0 ms)")

    assert kept.lines == ["connection refused (after 0 ms)", "certificate has expired (after 0 ms)"]


def test_brokers_that_are_down_are_reported_a_few_times_and_not_at_each_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Twenty clients that reconnected every 20 ms or more wrote thousands of lines a minute."""
    kafka = {"bootstrap.servers": f"127.0.0.1:{free_port()}"}
    often = {"reconnect.backoff.ms": "20", "reconnect.backoff.max.ms": "50"}
    clients = [client.consumer({**kafka, **often}, {}, lambda _: None) for _ in range(20)]
    deadline = time.monotonic() + 1

    with caplog.at_level(logging.INFO):
        while time.monotonic() < deadline:
            for each in clients:
                each.poll(0.01)
    for each in clients:
        each.close()

    assert 1 <= len([record for record in caplog.records if record.name.startswith("teacup")]) <= 10


def test_what_a_thread_logs_for_one_of_several_jobs_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In front of a text, unless it begins so already; in JSON as `job`, also what is mentioned there."""
    monkeypatch.setattr(logs, "_mentioned", {})  # by a job that another test has run in this process
    record = logging.LogRecord("teacup", logging.WARNING, "", 0, "it waits", None, None)
    named = logging.LogRecord("teacup", logging.WARNING, "", 0, "clicks: it waits", None, None)
    other: list[str] = []
    with logs.of_job("clicks"):
        mention(generation="g")
        texts = [formatter(as_json=False).format(each) for each in (record, named)]
        line = json.loads(formatter(as_json=True).format(record))
        thread = threading.Thread(target=lambda: other.append(formatter(as_json=False).format(record)))
        thread.start()
        thread.join()

    assert all(text.endswith("WARNING clicks: it waits") for text in texts)
    assert (line["job"], line["generation"]) == ("clicks", "g")
    assert "clicks" not in other[0] + formatter(as_json=False).format(record)
    assert "generation" not in json.loads(formatter(as_json=True).format(record))
