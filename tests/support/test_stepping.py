"""A stepped clock shows another time, and everything that waits still waits as long as it was asked to."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.stepping import SteppingClock

PROGRAM = """
import ctypes, datetime, threading, time
import polars
from confluent_kafka import Producer

class Time(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]

def until_the_wall(seconds):
    at = time.time() + seconds
    semaphore, c = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    c.sem_init(semaphore, 0, 0)
    assert c.sem_timedwait(semaphore, ctypes.byref(Time(int(at), int(at % 1 * 1e9)))) == -1

producer = Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
producer.produce("t", b"v")
for wait in (time.sleep, threading.Event().wait, until_the_wall, producer.flush):
    began = time.monotonic()
    wait(0.2)
    assert 0.15 < time.monotonic() - began < 5, (wait, time.monotonic() - began)
for _ in range(2_000):
    time.sleep(1e-6)
print(time.time(), datetime.datetime.now().timestamp(), time.monotonic())
producer.purge()
"""


@pytest.mark.slow
@pytest.mark.parametrize("off_s", [-7_200, 0, 7_200])
def test_the_wall_clock_steps_and_waits_last_as_long(tmp_path: Path, off_s: int) -> None:
    """Of Python, of semaphores until a time, of librdkafka."""
    clock = SteppingClock(tmp_path)
    clock.set(off_s)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **clock.environment},
        capture_output=True,
        text=True,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr
    wall_s, of_datetime_s, monotonic_s = map(float, done.stdout.split())
    assert abs(wall_s - time.time() - off_s) < 60
    assert abs(of_datetime_s - wall_s) < 1
    assert abs(monotonic_s - time.monotonic()) < 60
