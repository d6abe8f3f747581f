"""The `teacup` command as a process, also `python -m deploy.cli`: catches signals before it imports anything slow."""

from __future__ import annotations

import signal
import sys

_INTERRUPTED = 128 + signal.SIGINT
"""Typer's exit code after a KeyboardInterrupt, whatever the signal."""


def main() -> None:
    """Runs a command. A job that is stopped before it has begun leaves nothing behind and exits with 0."""
    if sys.argv[1:2] not in (["run"], ["unjoined"]):
        from deploy.cli.app import app

        app()
        return
    caught = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, caught)  # until their handlers are set
    from deploy.jobs.stopping import Stop

    try:
        stopping = Stop(ends_process=True)
    except FileNotFoundError as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
        sys.exit(_without_folder(error))
    try:
        with stopping as stop:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, caught)
            from deploy.cli.app import app

            app(obj=stop)
    except (KeyboardInterrupt, SystemExit) as end:  # also one that interrupts the restoring of the handlers
        if stopping.interrupted_by is None or getattr(end, "code", _INTERRUPTED) != _INTERRUPTED:
            raise
        sys.exit(128 + stopping.interrupted_by)


def _without_folder(error: FileNotFoundError) -> int:
    """Reports that there is no writable temporary folder; returns the exit code."""
    from teacup.base.errors import ExitCode

    sys.stderr.write(f"{error.strerror}: set TMPDIR to a folder that the process may write to\n")
    return ExitCode.BAD_JOB_FILE


if __name__ == "__main__":
    main()
