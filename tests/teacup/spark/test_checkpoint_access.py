"""Who is not let in to a checkpoint's object store, and lacks what: from what the drivers say."""

from __future__ import annotations

from teacup.spark.checkpoint_access import refused

URL = "s3a://streams/teacup/clicks"


def test_a_file_that_is_missing_is_no_refusal() -> None:
    """Nor is a store that does not answer, or a folder of another user's, which has an error of its own."""
    assert refused(URL, FileNotFoundError("streams/teacup/clicks/metadata")) is None
    assert refused(URL, ConnectionError("no route to host")) is None
    assert refused("/var/lib/teacup", PermissionError("denied")) is None
    assert "the job is refused (PermissionError: Forbidden)" in str(refused(URL, PermissionError("Forbidden")))
