"""`spark-submit deploy/submit.py JOB.yaml`: the same as `teacup run JOB.yaml`, on the session that Spark provides.

`--take-over` before the job file works as for `teacup run`.

Teacup must be installed for the interpreters of the driver and the workers (`PYSPARK_PYTHON`). Properties given to
`spark-submit` override those of the job file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.cli.app import run_file
from kafkaio.exitcode import ExitCode

TAKE_OVER = "--take-over"


def main(arguments: list[str]) -> int:
    files = [argument for argument in arguments if argument != TAKE_OVER]
    if len(files) != 1:
        sys.stderr.write(f"usage: spark-submit deploy/submit.py [{TAKE_OVER}] JOB.yaml\n")
        return ExitCode.BAD_JOB_FILE
    return run_file(Path(files[0]), take_over=TAKE_OVER in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
