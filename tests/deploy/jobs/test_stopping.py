"""How a job is asked to stop."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from deploy.jobs.stopping import SAME_REQUEST_S, Stop
from tests.support.waiting import wait_until


@pytest.fixture(autouse=True)
def _not_ignored() -> Iterator[None]:
    """Also if the tests are run with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def send(number: int) -> None:
    """To this process; handled when this returns."""
    os.kill(os.getpid(), number)
    time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_for_a_stop_and_its_echo_does_not_hurry_it(number: int) -> None:
    """`timeout` signals a process and then its group: the same process twice."""
    calls: list[int] = []
    with Stop() as stop:
        stop.at_once(lambda: calls.append(1))
        assert not stop.asked

        send(number)
        send(number)

        assert stop.asked
    assert calls == []


def test_a_second_signal_later_stops_at_once() -> None:
    """Of the query if there is one, otherwise of the main thread."""
    now_s, calls = [0.0], []
    with Stop(lambda: now_s[0]) as stop:
        send(signal.SIGTERM)
        now_s[0] = 2 * SAME_REQUEST_S
        stop.at_once(lambda: calls.append(1))
        send(signal.SIGTERM)
        wait_until(lambda: calls)
        assert calls == [1]
        stop.at_once(None)
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGINT)


def said_after(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    """What was logged, once it is so much: lines of signals come from threads."""
    wait_until(lambda: len(caplog.messages) >= count)
    return caplog.messages


def test_a_signal_says_what_becomes_of_the_batch_in_progress(caplog: pytest.LogCaptureFixture) -> None:
    """One that comes while the log is not set up is said as soon as it is."""
    caplog.set_level("INFO", "teacup")
    now_s = [0.0]
    with Stop(lambda: now_s[0]) as early:
        send(signal.SIGINT)
        assert caplog.messages == []
        early.speak()
        assert caplog.messages == ["SIGINT: stops before it has begun"]
        now_s[0] = 2 * SAME_REQUEST_S
        with pytest.raises(KeyboardInterrupt):
            send(signal.SIGTERM)
        assert caplog.messages[1:] == ["SIGTERM again: stops at once"]  # before the process ends
        assert early.interrupted_by == signal.SIGTERM

    caplog.clear()
    with Stop(lambda: now_s[0]) as later:
        later.speak()
        later.at_once(lambda: None)
        send(signal.SIGTERM)
        assert said_after(caplog, 1) == ["SIGTERM: finishes the batch and stops"]
        now_s[0] *= 2
        send(signal.SIGINT)
        again = "SIGINT again: stops at once, the batch in progress runs again at the next start"
        assert said_after(caplog, 2)[1:] == [again]


def test_what_a_signal_asks_for_is_said_also_if_the_log_is_never_set_up(capsys: pytest.CaptureFixture[str]) -> None:
    """As by a second one while modules are imported."""
    with Stop():
        send(signal.SIGINT)

    assert capsys.readouterr().err == "SIGINT: stops before it has begun\n"


def test_without_a_terminal_a_hangup_is_a_request_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that comes before anybody knows what it asks for; it stops nothing."""
    monkeypatch.setattr(os, "isatty", lambda number: False)
    calls: list[int] = []
    with Stop() as stop:
        send(signal.SIGHUP)
        stop.on_hangup(lambda: calls.append(1))
        assert calls == [1]

        send(signal.SIGHUP)

        assert calls == [1, 1]
        assert not stop.asked


ON_A_TERMINAL = """
import signal
from deploy.jobs.stopping import Stop
with Stop() as stop:
    stop.on_hangup(lambda: exit(3))
    print("ready", flush=True)
    while not stop.asked:
        signal.pause()
    print("nobody reads this", flush=True)
"""


def test_a_terminal_that_hangs_up_stops_a_job_cleanly() -> None:
    """What it prints then is no error: a batch ends with a line."""
    terminal, job_side = pty.openpty()
    job = subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL], stdout=job_side, stderr=job_side, start_new_session=True
    )
    os.close(job_side)
    assert os.read(terminal, 5) == b"ready"
    os.close(terminal)
    job.send_signal(signal.SIGHUP)

    assert job.wait(30) == 0


def test_with_nohup_a_hangup_does_nothing() -> None:
    """It is ignored, as before."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)

    with Stop():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_handlers_are_put_back() -> None:
    """A program that runs a job continues after it."""
    before = signal.getsignal(signal.SIGTERM)
    with Stop():
        assert signal.getsignal(signal.SIGTERM) != before

    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_at_the_very_end_of_a_process_does_not_change_its_exit_code() -> None:
    """Python still takes down what it has loaded; all is written, and said."""
    program = (
        "import os, signal, time\n"
        "from deploy.jobs.stopping import Stop\n"
        "with Stop(ends_process=True):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(0.01)"
    )

    done = subprocess.run([sys.executable, "-c", program], check=False)

    assert done.returncode == 0


def test_a_second_signal_while_the_handlers_are_put_back_is_one_that_interrupts_the_command() -> None:
    """Not an error that nobody catches, with which Python would end by SIGINT."""
    program = (
        "import os, signal, sys\n"
        "from deploy.cli.__main__ import main\n"
        "from deploy.jobs import stopping\n"
        "def put_back(*_):\n"
        "    for _ in range(2):\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "stopping.SAME_REQUEST_S, stopping.Stop.__exit__ = 0.0, put_back\n"
        "sys.argv = ['teacup', 'run', '--help']\n"
        "main()"
    )

    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=False)

    assert done.returncode == 128 + signal.SIGTERM
