"""The `teacup` command as a process, also `python -m deploy.cli`: catches signals before it imports anything slow."""

from __future__ import annotations

import sys

from deploy.jobs.stopping import Stop


def main() -> None:
    """Runs a command. A job that is stopped before it has begun leaves nothing behind and exits with 0."""
    if sys.argv[1:2] not in (["run"], ["unjoined"]):
        from deploy.cli.app import app

        app()
        return
    with Stop() as stop:
        from deploy.cli.app import app

        app(obj=stop)


if __name__ == "__main__":
    main()
