"""Passwords in URLs are in no message, however the URL is written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from teacup.base.fields import without_password


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
