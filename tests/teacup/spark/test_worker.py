"""Workers that take turns with small batches: all but one of them retire."""

from __future__ import annotations

import io
import struct
from collections import deque
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.serializers import SpecialLengths, write_int

from teacup.spark.worker import WorkerTurns


class Pool:
    """Spark's workers: a task goes to the one that has been idle for longest, and to a new one if none is idle."""

    def __init__(self) -> None:
        self.idle: deque[WorkerTurns] = deque()

    def batch(self, number: int, tasks: int = 1, job: str = "job") -> list[WorkerTurns]:
        """Runs its tasks, all at once; returns the workers that had them."""
        busy = [self.idle.popleft() if self.idle else WorkerTurns() for _ in range(tasks)]
        for worker in busy:
            worker.had(job, number, whole=tasks == 1)
        for at, worker in enumerate(busy):
            if not worker.retires(len(self.idle) + len(busy) - at):
                self.idle.append(worker)
        return busy


@given(st.lists(st.integers(1, 8), max_size=20))
def test_small_batches_come_to_one_worker(tasks: list[int]) -> None:
    """After any history, once each worker has had a turn, and one more."""
    pool = Pool()
    for number, parallel in enumerate(tasks):
        pool.batch(number, parallel)
    settled = len(tasks) + 2 * len(pool.idle) + 1

    for number in range(len(tasks), settled):
        pool.batch(number)
    (worker,) = pool.idle

    assert all(pool.batch(number) == [worker] for number in range(settled, settled + 20))


def test_workers_that_are_needed_at_once_stay() -> None:
    """In a backlog, a worker may miss a batch of fewer tasks."""
    pool = Pool()

    workers = {worker for number in range(20) for worker in pool.batch(number, tasks=2 + number % 3)}

    assert set(pool.idle) == workers
    assert len(workers) == 4


def test_workers_of_several_jobs_stay() -> None:
    """They take turns because of the other job."""
    pool = Pool()
    pool.batch(0, 2, "a")
    pool.batch(0, 2, "b")
    both = set(pool.idle)

    for number in range(1, 20):
        pool.batch(number, job="ab"[number % 3 % 2])

    assert set(pool.idle) == both


def test_a_worker_that_retires_tells_spark_so() -> None:
    """Spark gives it no other task: without another word it would wait for one."""
    for number, (last, word) in {
        2: (True, SpecialLengths.END_OF_DATA_SECTION),
        1: (False, SpecialLengths.END_OF_STREAM),
    }.items():
        worker, told = WorkerTurns(), io.BytesIO()
        write = worker.ending(write_int, lambda: 2)
        worker.had("job", 0, whole=True)
        worker.had("job", number, whole=True)
        write(7, told)

        with pytest.raises(SystemExit) if last else nullcontext():
            write(SpecialLengths.END_OF_STREAM, told)

        assert told.getvalue() == struct.pack("!ii", 7, word)
