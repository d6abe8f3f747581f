"""`spark-submit deploy/submit.py JOB.yaml`: the same as `teacup run JOB.yaml`, on the session that Spark provides.

Every option of `teacup run` is accepted. Teacup must be installed for the interpreters of the driver and the workers
(`PYSPARK_PYTHON`). Properties given to `spark-submit` override those of the job file.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str]) -> None:
    """Runs a job; exits with its code."""
    from deploy.jobs.stopping import Stop

    with Stop() as stop:  # before anything slow is imported
        import typer.core
        import typer.main

        from deploy.cli.app import app

        group = typer.main.get_command(app)
        assert isinstance(group, typer.core.TyperGroup)
        group.commands["run"].main(list(arguments), "spark-submit deploy/submit.py", obj=stop)


if __name__ == "__main__":
    main(sys.argv[1:])
