"""The process that finds out whether groups may be used ends with the question."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.connection import Connection

import pytest

from teacup.kafka.log import groups
from teacup.kafka.log.groups import error_codes

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


def test_no_process_is_left_behind_if_nobody_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was would write a traceback to standard error when the command ends."""
    monkeypatch.setattr(groups, "ANSWERED_WITHIN_S", 0.0)
    monkeypatch.setattr(groups, "_STARTED_WITHIN_S", 0.0)

    codes = error_codes(NOBODY, ["group"])

    assert codes is None
    assert multiprocessing.active_children() == []


def test_ctrl_c_is_not_for_the_process_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal signals it, too: it would write a traceback around a clean stop."""
    monkeypatch.setattr(groups, "_answer", _says_what_is_blocked)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    blocked = error_codes(NOBODY, ["group"])

    assert blocked == {"SIGINT": 1}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def _says_what_is_blocked(answering: Connection, *_: object) -> None:
    answering.send({number.name: 1 for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())})


def test_a_process_that_ends_without_an_answer_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As when librdkafka's assertion fails."""
    monkeypatch.setattr(groups, "_answer", _ends)

    codes = error_codes(NOBODY, ["group"])

    assert codes is None
    assert multiprocessing.active_children() == []


def _ends(*_: object) -> None:
    """Ends without an answer."""
