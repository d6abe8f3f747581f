"""The tutorial works: its commands, run in order by one shell on a broker, print what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from deploy.broker.lifeline import free_port
from deploy.jobfile.load import load_job
from docs.commands import COMMANDS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FOLDER, PORTS = "/tmp/teacup-tutorial", ("9092", "8710", "8720")
END_OF_BLOCK = "---- end of block ----"


class Block(NamedTuple):
    """Commands of the page, and the output shown right after them; None where none is shown."""

    commands: str
    shown: str | None


def blocks(page: str) -> list[Block]:
    """The `sh` blocks of a page, each with the `text` block that follows it, if one comes before the next `sh`."""
    found: list[Block] = []
    for language, text in re.findall(r"^```(sh|text)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        if language == "sh":
            found.append(Block(text, None))
        else:
            found[-1] = found[-1]._replace(shown=text)
    return found


def of_any_run(text: str) -> str:
    """A run of a job has a name of its own."""
    return re.sub(r"\b[0-9a-f]{16}(?=:\d)", "RUN", text.strip())


@pytest.mark.slow
def test_the_commands_print_what_the_page_shows(tmp_path: Path) -> None:
    """Only folder and ports are others."""
    page = PAGE.replace(FOLDER, f"{tmp_path}/tutorial")
    for port in PORTS:
        page = page.replace(port, str(free_port()))
    (start_broker, address), *others, (clean_up, _) = blocks(page)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}

    command = ["bash", "-c", f"exec {start_broker}"]
    broker = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        assert broker.stdout.readline() == address
        script = "".join(f"{one.commands}echo '{END_OF_BLOCK}'\n" for one in others)
        done = subprocess.run(["bash", "-e", "-c", script], env=environment, capture_output=True, text=True)
    finally:
        broker.send_signal(signal.SIGINT)
        broker.communicate(timeout=60)
    cleaned = subprocess.run(["bash", "-e", "-c", clean_up], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    printed = done.stdout.split(f"{END_OF_BLOCK}\n")
    for block, output in zip(others, printed, strict=False):
        assert block.shown is None or of_any_run(output) == of_any_run(block.shown), f"{block.commands}\n{done.stdout}"
    assert cleaned.returncode == 0, cleaned.stderr
    assert not (tmp_path / "tutorial").exists()


def test_the_job_file_is_valid(tmp_path: Path) -> None:
    """Without a broker."""
    (text,) = re.findall(r"^cat > job.yaml <<'EOF'\n(.*?)^EOF$", PAGE, re.DOTALL | re.MULTILINE)
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")

    assert load_job(path, {}).spec.left.topic == "clicks"


def test_the_page_uses_the_folder_and_the_ports_that_the_test_replaces() -> None:
    """Otherwise it would write to a folder, or talk to a broker, that is not its own."""
    assert [
        word for word in (FOLDER, f"--port {PORTS[0]}", *(f"localhost:{port}" for port in PORTS)) if word not in PAGE
    ] == []


def test_the_commands_and_options_of_the_page_exist_and_its_programs_are_python() -> None:
    """Without running any of them, which takes a minute."""
    script = "".join(block.commands for block in blocks(PAGE))
    programs = re.findall(r"^cat > (\w+\.py) <<'EOF'\n(.*?)^EOF$", script, re.DOTALL | re.MULTILINE)
    typed = [shlex.split(line) for line in script.splitlines() if line.startswith("teacup ")]

    for name, text in programs:
        compile(text, name, "exec")
    names = [next(name for name in COMMANDS if " ".join(words).startswith(f"{name} ")) for words in typed]
    for name, words in zip(names, typed, strict=True):
        known = {option for one in COMMANDS[name].params for option in one.opts}
        assert {word for word in words if word.startswith("-")} <= known, words
    assert len(programs) >= 6
    assert set(names) == {
        *("teacup dev broker", "teacup check", "teacup run", "teacup explain"),
        *("teacup storage serve", "teacup delay serve", "teacup delay collect"),
    }
