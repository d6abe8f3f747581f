"""Runs the development broker in the foreground: `teacup dev broker`, `python -m deploy.dev.broker.command`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from deploy.dev.broker.broker import Broker
from deploy.dev.broker.jars import fetch_jars
from deploy.errors import BrokerFailed, DeployError
from teacup.spark.errors import SparkError
from teacup.spark.java import find_java


def run_broker(folder: Path | None, port: int | None) -> None:
    """Runs a broker in the foreground: prints its address, stops on Ctrl-C or SIGTERM.

    Raises `BrokerFailed` if the broker ends by itself.
    """
    asked_to_stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: asked_to_stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with Broker(folder, port=port) as broker:
            sys.stdout.write(f"Kafka on {broker.bootstrap}, folder {broker.folder}; Ctrl-C stops it\n")
            sys.stdout.flush()
            while not asked_to_stop.wait(0.2):
                if broker.pid is None:
                    raise BrokerFailed(f"the broker ended by itself; {broker.tail()}")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m deploy.dev.broker.command", description=run_broker.__doc__)
    parser.add_argument("--fetch", action="store_true", help="only fetch the jars through Maven")
    parser.add_argument("--folder", type=Path, help="where its log is kept (default: a temporary folder)")
    parser.add_argument("--port", type=int, help="default: a free one")
    asked = parser.parse_args()
    try:
        if asked.fetch:
            find_java()
            sys.stdout.write(f"{fetch_jars()}\n")
        else:
            run_broker(asked.folder, asked.port)
    except (DeployError, SparkError) as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
