"""What the processes that Spark starts log: lines on standard error that look like the driver's."""

from __future__ import annotations

import logging

FORMAT = "%(asctime)s %(levelname)s %(message)s"


def log_like_the_driver() -> None:
    """From now on, unless the process has a log already; without one Python prints the message alone."""
    logging.basicConfig(format=FORMAT)
