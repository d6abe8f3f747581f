"""Questions to `teacup explain`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.cli.explains import Question, explain_of
from teacup.base.errors import ExitCode
from tests.support.exitcodes import code_of


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`ask(content, left="0:1")`: the answer as JSON; with `text=True` its lines."""

    def asked(content: dict[str, Any], *, text: bool = False, **question: Any) -> Any:
        path = tmp_path / "asked.yaml"
        path.write_text(yaml.safe_dump(content))
        capsys.readouterr()
        code = code_of(explain_of, path, Question(**question), as_json=not text)
        printed = capsys.readouterr()
        assert code == ExitCode.DONE, printed.err
        return printed.out.splitlines() if text else json.loads(printed.out)

    return asked
