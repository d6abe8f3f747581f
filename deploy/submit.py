"""`spark-submit deploy/submit.py JOB.yaml`: the same as `teacup run JOB.yaml`, on the session that Spark provides.

Teacup must be installed for the interpreter of the driver and of the workers (`PYSPARK_PYTHON`). Properties given to
`spark-submit` win over those of the job file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.cli import run_file
from deploy.exitcodes import ExitCode


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: spark-submit deploy/submit.py JOB.yaml\n")
        return ExitCode.BAD_JOB_FILE
    return run_file(Path(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
