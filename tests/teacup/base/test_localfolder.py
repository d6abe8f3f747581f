"""Which checkpoints are folders of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from teacup.base.fields import local_folder


@pytest.mark.parametrize(
    ("checkpoint", "folder"),
    [
        ("/state/x", Path("/state/x")),
        ("state/x", Path("state/x")),
        ("file:///state/x", Path("/state/x")),
        ("file:/state/x", Path("/state/x")),
        ("s3a://bucket/x", None),
        ("hdfs://name:8020/x", None),
        ("dbfs:/x", None),
    ],
)
def test_only_a_path_or_a_file_url_is_local(checkpoint: str, folder: Path | None) -> None:
    """Everything else is remote storage."""
    assert local_folder(checkpoint) == folder
