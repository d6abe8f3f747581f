"""`make demo` and `make demo-lookup`: an error is reported without a traceback, and gives its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from deploy.broker.lifeline import HOST, free_port
from deploy.errors import JarsNotFetched
from dev.demo_parts import INTERRUPTED, run_demo
from teacup.base.errors import ExitCode


def ended(module: str, **env: str) -> tuple[int, list[str]]:
    """The exit code of a demo, and the lines that it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"} | env
    done = subprocess.run(
        [sys.executable, "-m", module],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=240,
    )
    return done.returncode, done.stdout.splitlines()


def test_a_broker_that_does_not_answer_is_one_line():
    """BOOTSTRAP with a port that nothing listens on."""
    nobody = f"{HOST}:{free_port()}"

    code, lines = ended("dev.demo", BOOTSTRAP=nobody)

    assert code == ExitCode.UNREACHABLE
    assert nobody in lines[-1]
    assert not any(line.startswith("Traceback") for line in lines)


def test_without_java_they_say_how_to_get_it(tmp_path: Path):
    """The broker of our own cannot be started."""
    code, lines = ended("dev.demo_lookup", BOOTSTRAP="", PATH=str(tmp_path))

    assert code == ExitCode.BAD_JOB_FILE
    assert [line for line in lines if line.startswith("no Java found (PATH has no java)")]
    assert not any(line.startswith("Traceback") for line in lines)


def test_each_error_ends_a_demo_with_its_code(capsys):
    """What a demo raises decides how it ends."""

    def interrupted() -> int:
        raise KeyboardInterrupt

    def no_jars() -> int:
        raise JarsNotFetched("mvn failed")

    before = signal.getsignal(signal.SIGTERM)
    try:
        codes = [run_demo(interrupted), run_demo(no_jars)]
    finally:
        signal.signal(signal.SIGTERM, before)

    assert codes == [INTERRUPTED, ExitCode.FAILED]
    assert capsys.readouterr().out.splitlines() == ["interrupted; everything is stopped", "mvn failed"]
