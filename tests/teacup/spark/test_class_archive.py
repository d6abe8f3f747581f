"""The archive of Spark's classes: used if it exists, never needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.spark.java import archive_name, archive_options


def test_without_an_archive_the_jvm_gets_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts as it always did."""
    monkeypatch.setenv("TEACUP_CACHE", str(tmp_path))

    assert archive_options() == ()


def test_an_archive_that_is_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the versions it was written for."""
    monkeypatch.setenv("TEACUP_CACHE", str(tmp_path))
    archive = tmp_path / archive_name()
    archive.parent.mkdir()
    archive.touch()

    assert archive_options()[0] == f'"-XX:SharedArchiveFile={archive}"'
