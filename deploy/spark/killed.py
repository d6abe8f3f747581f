"""How a process ended, in words, and what to do about it."""

from __future__ import annotations

import signal

AGAINST_LACK_OF_MEMORY = (
    "Against lack of memory (`dmesg`, or a container's `OOMKilled`, tells): fewer tasks at once (`spark.master`), a "
    "smaller `records_per_batch`, or more memory"
)
CONTINUES = f"Nothing is lost: start the job again. {AGAINST_LACK_OF_MEMORY}"


def how_ended(code: int) -> str:
    """Says how a process ended, by its return code as `subprocess` gives it: negative ones are signals.

    Who sent a signal cannot be known; for lack of memory the kernel sends SIGKILL.
    """
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal has no name
        name = f"signal {-code}"
    if code == -signal.SIGKILL:
        return f"was killed by {name}, by the kernel for lack of memory unless somebody did"
    return f"was killed by {name}"
