"""The positions of a job's newest batch are committed behind its back, and stay committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest

from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.log.groups import Commit, LatestOffsets, Spot
from tests.support.waiting import wait_until


class Group:
    """What is committed to it; `refuses` as many commits as it says; each waits until it may go on."""

    group = "clicks"

    def __init__(self, refuses: int = 0) -> None:
        self.tried, self.committed, self.opened, self.refuses = list[Commit](), list[Commit](), 0, refuses
        self.may = threading.Event()
        self.may.set()

    def open(self) -> Any:
        self.opened += 1
        return self

    def commit(self, offsets: Mapping[Spot, int], note: str) -> None:
        self.tried.append((offsets, note))
        self.may.wait()
        if len(self.tried) <= self.refuses:
            raise KafkaUnavailable("no answer")
        self.committed.append((offsets, note))

    def close(self) -> None:
        pass


def at(offset: int) -> Commit:
    return {("clicks", 0): offset}, "note"


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is renewed or tried again."""
    monkeypatch.setattr("teacup.kafka.log.groups.RENEWED_EVERY_S", threading.TIMEOUT_MAX)
    monkeypatch.setattr("teacup.kafka.log.groups.TRIED_EVERY_S", threading.TIMEOUT_MAX)


def test_the_latest_offsets_are_committed_and_nothing_waits_for_them(never: None) -> None:
    """Those in between need not be; the last ones are, before `close` returns."""
    group = Group()
    group.may.clear()
    latest = LatestOffsets(group.open)
    latest.put(lambda: at(1))
    wait_until(lambda: group.tried == [at(1)])
    latest.put(lambda: at(2))
    latest.put(lambda: at(3))
    group.may.set()
    latest.close()

    assert group.committed == [at(1), at(3)]
    assert group.opened == 1


def test_a_commit_that_failed_is_tried_again(never: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a new connection: the broker was unreachable."""
    monkeypatch.setattr("teacup.kafka.log.groups.TRIED_EVERY_S", 0.01)
    group = Group(refuses=2)
    latest = LatestOffsets(group.open)
    latest.put(lambda: at(1))
    wait_until(lambda: group.committed == [at(1)])
    latest.close()

    assert (group.tried, group.opened) == ([at(1)] * 3, 3)


def test_a_job_that_ends_does_not_try_again_and_again(never: None) -> None:
    """No broker answers: each attempt takes seconds."""
    group = Group(refuses=9)
    latest = LatestOffsets(group.open)
    latest.put(lambda: at(1))
    wait_until(lambda: group.tried == [at(1)])
    latest.close()

    assert group.tried == [at(1)]


def test_offsets_are_renewed_while_nothing_follows(never: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka forgets those of a group without members, and others may delete the group or set them."""
    monkeypatch.setattr("teacup.kafka.log.groups.RENEWED_EVERY_S", 0.01)
    group = Group()
    latest = LatestOffsets(group.open)
    latest.put(lambda: at(1))
    wait_until(lambda: len(group.committed) >= 5)
    latest.close()

    assert set(map(repr, group.committed)) == {repr(at(1))}
    assert group.opened == 1


def test_canary_without_renewal_offsets_are_committed_once(never: None) -> None:
    """However long nothing follows."""
    group = Group()
    latest = LatestOffsets(group.open)
    latest.put(lambda: at(1))
    time.sleep(0.2)
    latest.close()

    assert group.committed == [at(1)]


def test_before_the_first_batch_there_is_nothing_to_commit() -> None:
    """Nor a thread that could."""
    group = Group()
    LatestOffsets(group.open).close()

    assert group.opened == 0
