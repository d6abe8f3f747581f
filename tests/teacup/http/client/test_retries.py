"""What may be repeated is repeated, a bounded number of times."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from teacup.http.client import retries
from teacup.http.client.retries import Again, Patience


class Down(Exception):
    """What an attempt fails with."""


def failing(times: int) -> tuple[list[int], Callable[[], str]]:
    """Returns an attempt that fails so often before it succeeds, and the number of each attempt."""
    attempts: list[int] = []

    def attempt() -> str:
        attempts.append(len(attempts) + 1)
        if len(attempts) <= times:
            raise Again(Down(f"attempt {len(attempts)}"), after_s=0.0)
        return "done"

    return attempts, attempt


def test_an_attempt_is_repeated_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged of what is over soon."""
    attempts, attempt = failing(2)

    assert Patience(3).repeat(attempt) == "done"
    assert attempts == [1, 2, 3]
    assert not caplog.messages


def test_a_call_that_fails_for_long_says_so_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for many attempts, of many calls."""
    monkeypatch.setattr(retries, "SAY_EVERY_S", 0.0)
    for _ in range(3):
        _, attempt = failing(50)
        assert Patience(99).repeat(attempt) == "done"

    assert caplog.messages == ["attempt 1 (for 0 s now)"]


def test_the_last_error_is_raised_after_the_last_attempt() -> None:
    """Itself, not what asked for another attempt."""
    attempts, attempt = failing(9)

    with pytest.raises(Down, match="attempt 3"):
        Patience(3).repeat(attempt)
    assert attempts == [1, 2, 3]


def test_no_attempt_starts_after_the_time_to_give_up() -> None:
    """However many are left."""
    attempts, attempt = failing(9)

    with pytest.raises(Down, match="attempt 1"):
        Patience(9, give_up_after_s=0.0).repeat(attempt)
    assert attempts == [1]


def test_another_error_is_not_repeated() -> None:
    """The caller decides with `Again`."""
    attempts: list[int] = []

    def attempt() -> None:
        attempts.append(1)
        raise Down("at once")

    with pytest.raises(Down):
        Patience(9).repeat(attempt)
    assert attempts == [1]
