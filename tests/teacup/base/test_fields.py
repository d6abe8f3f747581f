"""What fields become by their declared types; what is never shown; which checkpoints are folders of this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from teacup.base.fields import Count, Text, coerce_fields, local_folder, without_password


@dataclass(frozen=True, slots=True)
class Description:
    """One field of each type."""

    count: Count = 1
    folder: Path | None = None
    seconds: float = 1.0
    word: Literal["a", "b"] = "a"
    words: tuple[Text, ...] = ()
    token: Text | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        coerce_fields(self, ValueError, "thing {}")


def test_values_become_the_declared_types() -> None:
    """A path from its text, a float from an int, a tuple from a list."""
    made = Description(folder="/x", seconds=2, words=["one"])

    assert made == Description(folder=Path("/x"), seconds=2.0, words=("one",))
    assert isinstance(made.folder, Path)
    assert isinstance(made.seconds, float)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "thing count: 0 is not allowed; give a whole number, 1 or more"),
        ({"folder": 5}, "thing folder: 5 is not allowed; give a Path or None"),
        ({"seconds": float("inf")}, "thing seconds: inf is not allowed; give a number"),
        ({"word": "c"}, "thing word: 'c' is not allowed; give 'a' or 'b'"),
        ({"words": "one"}, "thing words: 'one' is not allowed; give a list, each of it a text that is not empty"),
        ({"words": ["", "x"]}, "thing words: ['', 'x'] is not allowed; give a text that is not empty"),
        ({"token": 12345}, "thing token: *** is not allowed; give a text that is not empty or None"),
    ],
)
def test_others_are_refused_with_what_to_give(values: dict[str, object], message: str) -> None:
    """A secret is not shown."""
    with pytest.raises(ValueError, match="is not allowed") as refused:
        Description(**values)

    assert str(refused.value) == message


@example("with/slash")
@example("with@sign and space")
@example("?sync=no&")
@given(st.text(min_size=1))
def test_a_password_is_masked_whatever_it_is_made_of(password: str) -> None:
    """Many forget to percent-encode it."""
    assert without_password(f"redis://user:{password}@host:6379/0") == "redis://user:***@host:6379/0"
    assert without_password(f"redis://:{password}@host/0") == "redis://:***@host/0"


@given(st.text("abc/@: %?", min_size=1))
def test_a_password_in_the_query_is_masked(password: str) -> None:
    """libpq takes it there, too."""
    masked = without_password(f"postgresql://host/delay?sslpassword={password}&sslmode=require")

    assert masked.endswith("sslpassword=***&sslmode=require")


@pytest.mark.parametrize(
    "url",
    [
        "lmdb:///var/lib/teacup/storage?map_size=1GiB",
        "aerospike://one:3000,other:3000/namespace",
        "postgresql://user@host:5432/delay",
        "http://host:8720",
        "10:30 at host",
    ],
)
def test_a_text_without_one_stays_as_it_is(url: str) -> None:
    """Ports are none."""
    assert without_password(url) == url


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
