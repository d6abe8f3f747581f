"""How a job is asked to stop: SIGINT or SIGTERM, from its first moment on; and what SIGHUP asks for.

first signal     a clean stop: nothing more is planned, the batch in progress is finished and committed, exit code 0.
                 While Spark is starting, the job ends as soon as it has started. If no batch can end
                 (`JobState.stuck`), as with a second signal
second signal    stops at once: the batch in progress runs again at the next start. If there is nothing to stop, as in
                 the first seconds, the main thread is interrupted
SIGHUP           when a terminal hangs up: a clean stop, and further output is discarded. Without a terminal it never
                 ends a job: a process with many jobs reads their files again, one with a single job only logs a line.
                 With `nohup` it does nothing

A terminal, `timeout` and service managers signal a process and its group, so one request arrives several times: signals
within a second of the first count as the same one. Standard library only, so that handlers are in place before anything
slow is imported.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

log = logging.getLogger("teacup")

SAME_REQUEST_S = 1.0
SAID_WITHIN_S = 1.0
"""How long an ending process waits for its last line."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
STANDARD = (0, 1, 2)
"""Input, output and error."""


class StopRequest:
    """Whether a job is asked to stop.

    asked   whether it is
    begun   whether the job has begun its work; before, no batch is in progress
    """

    def __init__(self) -> None:
        self.asked = self.begun = False
        self._at_once: Callable[[], None] | None = None

    def ask(self) -> None:
        """Asks for a clean stop."""
        self.asked = True

    def at_once(self, stop: Callable[[], None] | None) -> None:
        """Sets what stops the job at once, called in a thread of its own; None: nothing."""
        self._at_once, self.begun = stop, True

    def hurry(self) -> bool:
        """Stops the job at once if possible; returns whether it was."""
        if self._at_once is None:
            return False
        threading.Thread(target=self._at_once, daemon=True).start()
        return True


class Stop(StopRequest):
    """A request made by signals, which it catches while entered; a second one with nothing to stop at once interrupts
    the main thread.

    ends_process   the process ends next: a SIGTERM once all is done does not change its exit code
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, ends_process: bool = False) -> None:
        self._clock, self._ends_process = clock, ends_process
        super().__init__()
        self._asked_at = 0.0
        self._before: dict[signal.Signals, object] = {}
        self._terminals = [number for number in STANDARD if os.isatty(number)]
        self._hung_up = False
        self._react: Callable[[], object] | None = None
        self._speaks = False
        self._unsaid: list[str] = []
        self.interrupted_by: int | None = None
        """The signal that has interrupted the main thread."""

    def speak(self) -> None:
        """Logs what signals ask for, including those that have already come; to be called once the log is set up."""
        self._speaks = True
        while self._unsaid:
            log.info(self._unsaid.pop(0))

    def on_hangup(self, react: Callable[[], object]) -> None:
        """Sets what SIGHUP does without a terminal, in the handler; called at once if one has come already."""
        self._react = react
        if self._hung_up:
            react()

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # handlers can be set only there
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as set by `nohup`
                self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hangs_up)
            self._before |= {number: signal.signal(number, self._signalled) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            ends = self._ends_process and handler is signal.SIG_DFL
            signal.signal(number, signal.SIG_IGN if ends else handler)  # type: ignore[arg-type]  # what it was before
        for line in self._unsaid:
            sys.stderr.write(f"{line}\n")

    def _hangs_up(self, number: int, frame: FrameType | None) -> None:
        self._hung_up = True
        if self._terminals:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for terminal in self._terminals:
                os.dup2(nowhere, terminal)  # a line that nobody can see must not end a batch
            os.close(nowhere)
            self._signalled(number, frame)
        elif self._react is not None:
            self._react()

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        now_s, name = self._clock(), signal.Signals(number).name
        if not self.asked:
            self._asked_at = now_s
            self.ask()
            self._say(f"{name}: {'finishes the batch and stops' if self.begun else 'stops before it has begun'}")
        elif now_s - self._asked_at > SAME_REQUEST_S:
            again = ", the batch in progress runs again at the next start" if self.begun else ""
            self._say(f"{name} again: stops at once{again}", SAID_WITHIN_S)
            if not self.hurry():
                self.interrupted_by = number
                raise KeyboardInterrupt

    def _say(self, line: str, within_s: float = 0.0) -> None:
        if self._speaks:
            say(line).join(within_s)
        else:
            self._unsaid.append(line)


def say(line: str, *values: str) -> threading.Thread:
    """Logs in a thread, which it returns, as the signal may have interrupted the writing of another line."""
    thread = threading.Thread(target=log.info, args=(line, *values), daemon=True)
    thread.start()
    return thread
