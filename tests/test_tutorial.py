"""The job file of the tutorial is valid, and its folder and port are those that tests replace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.jobfile.load import load_job

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FOLDER, PORT = "/tmp/teacup-tutorial", "9092"


def test_the_job_file_is_valid(tmp_path: Path) -> None:
    """Without a broker."""
    (text,) = re.findall(r"^cat > job.yaml <<'EOF'\n(.*?)^EOF$", PAGE, re.DOTALL | re.MULTILINE)
    path = tmp_path / "job.yaml"
    path.write_text(text, encoding="utf-8")

    assert load_job(path, {}).spec.left.topic == "clicks"


@pytest.mark.parametrize("word", [FOLDER, f"localhost:{PORT}", f"--port {PORT}"])
def test_the_page_uses_the_folder_and_port_that_the_test_replaces(word: str) -> None:
    """Otherwise it would write to a folder, or talk to a broker, that is not its own."""
    assert word in PAGE
