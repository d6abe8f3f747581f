"""Configuration files that include others, and secrets in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from teacup.base.config.document import Document
from teacup.base.config.secret_files import read_now
from teacup.base.errors import SettingsInvalid


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = 0
    b: int = 0


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    one: Inner = Inner()
    words: list[str] = []
    kafka: dict[str, str] = {}
    token: str = ""


def files(folder: Path, **texts: str) -> Path:
    """Files of these names; the path of the first."""
    for name, text in texts.items():
        path = folder / f"{name}.yaml"
        path.write_text(text)
    return folder / f"{next(iter(texts))}.yaml"


def read(path: Path, *assignments: str) -> Settings:
    return Document.read(path, {"NAME": "x"}, assignments, lambda _: Settings).as_model(Settings)


def problems(path: Path, *assignments: str) -> str:
    with pytest.raises(SettingsInvalid) as raised:
        read(path, *assignments)
    return str(raised.value)


def test_mappings_are_merged_and_all_else_is_replaced(tmp_path: Path) -> None:
    """The file goes over what it includes, a later included one over an earlier one; `--set` goes over all."""
    path = files(
        tmp_path,
        job="include: [first.yaml, second.yaml]\none: {a: 1}\nwords: [of, mine]\n",
        first="one: {a: 2, b: 3}\nwords: [first]\ntoken: first\n",
        second="one: {b: 4}\ntoken: '${NAME}'\n",
    )

    assert read(path) == Settings(one=Inner(a=1, b=4), words=["of", "mine"], token="x")
    assert read(path, "one.b=9").one == Inner(a=1, b=9)


def test_a_path_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    """Also of a file that is included."""
    (tmp_path / "shared").mkdir()
    files(tmp_path / "shared", common="include: deeper.yaml\none: {a: 1}\n", deeper="one: {b: 2}\n")
    path = files(tmp_path, job="include: shared/common.yaml\n")

    assert read(path).one == Inner(a=1, b=2)


def test_a_message_names_the_file_and_the_key_that_a_value_came_from(tmp_path: Path) -> None:
    """And the command line, where it gave the value."""
    path = files(tmp_path, job="include: common.yaml\nwords: 3\n", common="one: {a: wrong, b: 1}\ntoken: '${NONE}'\n")
    found = problems(path, "one.b=bad")

    common = tmp_path / "common.yaml"
    assert f"\n  {common}: one.a: 'wrong' is not allowed" in found
    assert f"\n  {common}: token: the environment has no NONE" in found
    assert "\n  words: 3 is not allowed" in found
    assert "\n  --set one.b: 'bad' is not allowed" in found


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"job": "include: job.yaml\n"}, "job.yaml would never end"),
        ({"job": "include: a.yaml\n", "a": "include: b.yaml\n", "b": "include: a.yaml\n"}, "a.yaml would never end"),
        ({"job": "include: none.yaml\n"}, "none.yaml: cannot be read: No such file"),
        ({"job": "include: 3\n"}, "include: give the path of a file"),
        ({"job": "include: a.yaml\n", "a": "one: {a: 1, a: 2}\n"}, "the key 'a' occurs twice"),
    ],
)
def test_what_cannot_be_included_is_refused(tmp_path: Path, texts: dict[str, str], said: str) -> None:
    """Naming both files."""
    assert said in problems(files(tmp_path, **texts))


def test_a_secret_is_read_from_its_file(tmp_path: Path) -> None:
    """Without the newline at its end; relative to the file that names it."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "token").write_text("s3cret\n")
    files(tmp_path / "shared", common="token: 'Bearer ${file:token}'\n")

    assert read(files(tmp_path, job="include: shared/common.yaml\n")).token == "Bearer s3cret"


def test_the_secret_of_a_client_stays_in_its_file_until_a_client_is_made(tmp_path: Path) -> None:
    """It is read again each time, so that one that was rotated is used."""
    secret = tmp_path / "password"
    secret.write_text("first")
    text = f"kafka: {{sasl.username: '${{file:{secret}}}', sasl.password: '${{file:{secret}}}'}}\n"
    kafka = read(files(tmp_path, job=text)).kafka

    assert kafka == {"sasl.username": "first", "sasl.password": f"${{file:{secret}}}"}
    assert read_now(kafka)["sasl.password"] == "first"
    secret.write_text("second\n")
    assert read_now(kafka)["sasl.password"] == "second"


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"x" * (2 << 20)])
def test_a_file_without_a_secret_is_named_and_its_content_is_not(tmp_path: Path, content: bytes | None) -> None:
    """With the key, when the configuration is read and when a client is made."""
    secret = tmp_path / "password"
    if content is not None:
        secret.write_bytes(content)
    path = files(tmp_path, job=f"kafka: {{sasl.password: '${{file:{secret}}}'}}\n")

    assert f"kafka.sasl.password: the file {secret} " in problems(path)
    with pytest.raises(ValueError, match=f"sasl.password: the file {secret}"):
        read_now({"sasl.password": f"${{file:{secret}}}"})


def test_what_a_variable_holds_is_not_looked_into(tmp_path: Path) -> None:
    """Whoever sets a variable reads no files by it."""
    path = files(tmp_path, job="token: '${TOKEN}'\n")
    environ: dict[str, Any] = {"TOKEN": "${file:/etc/hostname}"}

    assert Document.read(path, environ).as_model(Settings).token == "${file:/etc/hostname}"
