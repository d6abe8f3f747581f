"""YAML settings with environment variables: what is replaced, what is refused, what is never echoed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import RootModel

from teacup.base.config.document import Document
from teacup.base.errors import SettingsInvalid


def _file(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _settings(path: Path, environ: dict[str, str]) -> dict[str, Any]:
    return Document.read(path, environ).as_model(RootModel[dict[str, Any]]).root


def test_variables_are_replaced_in_text_values_only(tmp_path: Path) -> None:
    """A value that looks like YAML stays text: the environment cannot change the structure."""
    path = _file(tmp_path, "a: x-${NAME}-${OTHER:-d}\nlist: ['${NAME}']\nn: 3\nempty: ${NONE:-}\n")

    settings = _settings(path, {"NAME": "[1, 2]"})

    assert settings == {"a": "x-[1, 2]-d", "list": ["[1, 2]"], "n": 3, "empty": ""}


def test_every_missing_variable_is_named_with_its_key(tmp_path: Path) -> None:
    """All at once, including text that only looks like a variable."""
    path = _file(tmp_path, "kafka: {sasl.password: '${PASSWORD}'}\nlist: ['${HOST}', '${no name}']\n")

    with pytest.raises(SettingsInvalid) as raised:
        _settings(path, {})

    message = str(raised.value)
    assert re.search(r"kafka\.sasl\.password: .* no PASSWORD", message)
    assert re.search(r"list\.0: .* no HOST", message)
    assert "list.1: contains `${` but no variable" in message


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    """YAML would silently take the second."""
    path = _file(tmp_path, "a: 1\nb: 2\na: 3\n")

    with pytest.raises(SettingsInvalid, match=r"line 3, column 1: .*'a'"):
        _settings(path, {})


def test_a_time_stays_the_text_that_was_written(tmp_path: Path) -> None:
    """A time without a zone must be recognisable as such."""
    path = _file(tmp_path, "start: 2026-01-02T03:04:05\n")

    assert _settings(path, {}) == {"start": "2026-01-02T03:04:05"}


@pytest.mark.parametrize("text", ["password: 'hunter2\n", "password: hunter2: x\n", "- hunter2\n", "hunter2\n"])
def test_a_file_that_is_not_a_mapping_is_refused_without_quoting_it(tmp_path: Path, text: str) -> None:
    """The line that does not parse may contain a secret."""
    path = _file(tmp_path, text)

    with pytest.raises(SettingsInvalid) as raised:
        _settings(path, {})

    assert str(path) in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The path, and that it cannot be read."""
    with pytest.raises(SettingsInvalid, match=r"missing\.yaml: 1 error\n  .*No such file"):
        _settings(tmp_path / "missing.yaml", {})


def test_words_and_numbers_of_yaml_1_1_stay_texts(tmp_path: Path) -> None:
    """A country `no` is not false, and a code `010` is not 8: a filter by them would take other records."""
    texts = ["no", "on", "Yes", "off", "y", "010", "12:30", "-07", "0b1", "0o7"]
    path = _file(tmp_path, f"texts: [{', '.join(texts)}]\nothers: [true, FALSE, 10, -7, 0, 0x1f, 1_000, 1.5, null]\n")

    settings = _settings(path, {})

    assert settings == {"texts": texts, "others": [True, False, 10, -7, 0, 31, 1000, 1.5, None]}
