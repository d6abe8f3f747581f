"""Who is not let in to a checkpoint's object store, and lacks what: from what the drivers say."""

from __future__ import annotations

import pytest

from deploy.checkpoint.file import refused, refused_to_spark

URL = "s3a://streams/teacup/clicks"
DENIED = "java.nio.file.AccessDeniedException: s3a://streams/teacup/clicks: "


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3A not found", "has no driver"),
        ('UnsupportedFileSystemException: No FileSystem for scheme "s3"', "has no driver"),
        (f"{DENIED}a.NoAwsCredentialsException: Session credentials: No AWS Credentials", "finds no credentials"),
        (f"{DENIED}a.NoAuthWithAWSException: No AWS Credentials provided by X", "finds no credentials"),
        (f"{DENIED}getFileStatus: The AWS Access Key Id you provided does not exist", "is refused"),
        ("UnknownStoreException: `s3a://streams/x': NoSuchBucketException: does not exist", "finds no such bucket"),
        ("java.net.ConnectException: Connection refused", None),
    ],
)
def test_what_spark_lacks_is_in_the_words_of_hadoop(text: str, what: str | None) -> None:
    """A store that does not answer refuses nobody; a folder has no credentials."""
    found = refused_to_spark(URL, f"An error occurred while calling o1.start.\n: {text}\n\tat a.B(C.java:1)")

    assert found is None if what is None else f"checkpoint '{URL}': Spark {what} (" in str(found)
    assert "\n" not in str(found)
    assert refused_to_spark("/var/lib/teacup", text) is None


def test_a_file_that_is_missing_is_no_refusal() -> None:
    """Nor is a store that does not answer, or a folder of another user's, which has an error of its own."""
    assert refused(URL, FileNotFoundError("streams/teacup/clicks/metadata")) is None
    assert refused(URL, ConnectionError("no route to host")) is None
    assert refused("/var/lib/teacup", PermissionError("denied")) is None
    assert "Python is refused (PermissionError: Forbidden)" in str(refused(URL, PermissionError("Forbidden")))
