"""Whether a store can have what was acknowledged to a process, by the process's key in it."""

from __future__ import annotations

import pytest

from teacup.storage.backends.redis.witnesses import COUNT_LIVES_MS, Acknowledged

ACKNOWLEDGED = Acknowledged("first", 7, 1_000)


@pytest.mark.parametrize(("count", "there"), [(b"7", True), (b"9", True), (b"6", False), (None, False)])
def test_a_lower_count_is_a_loss(count: bytes | None, there: bool):
    """A higher one is a request that is under way."""
    assert ACKNOWLEDGED.is_there("first", count, 2_000) is there


def test_a_count_that_may_have_expired_says_nothing():
    """The process has written nothing for long."""
    assert ACKNOWLEDGED.is_there("first", None, 1_001 + COUNT_LIVES_MS // 2)


def test_a_loss_is_remembered_until_the_generation_is_another_one():
    """Though further requests have raised the count again."""
    lost = ACKNOWLEDGED.then(b"3", 8, 2_000).then(b"8", 9, 3_000)

    assert not lost.is_there("first", b"9", 3_000)
    assert lost.is_there("second", b"9", 3_000)
    assert lost.seen("second", 3_000).then(b"9", 10, 4_000).is_there("second", b"10", 4_000)


def test_an_earlier_generation_that_is_back_is_a_loss():
    """Whatever the count says: an older copy was restored."""
    second = ACKNOWLEDGED.seen("second", 2_000)
    third = second.then(b"7", 8, 2_500).seen("third", 3_000)

    assert second.is_there("second", None, 2_000)
    assert not second.is_there("first", b"8", 2_000)
    assert not third.is_there("first", b"9", 3_000)
    assert not third.is_there("second", b"9", 3_000)
    assert third.seen("third", 4_000) == third
