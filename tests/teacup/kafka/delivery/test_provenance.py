"""The header that says where a row comes from, whatever it holds: it may be of another program."""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.delivery.provenance import BatchTag, positions_in, provenance, provenance_of, tags_in
from teacup.kafka.read.fetch import HEADERS
from teacup.kafka.write.templates import MadeHeaders

TAG = BatchTag.of("job", "generation", 7)
ROWS = pl.DataFrame(
    {
        "left_partition": [0, 12],
        "left_offset": [5, 9_000_000_000],
        "right_partition": [3, None],
        "right_offset": [7, None],
        "has_right": [True, False],
    }
)


def headers(*values: bytes | None) -> pa.Array:
    """Records with this header."""
    return pa.array([None if value is None else [("teacup", value)] for value in values], HEADERS)


def written(**sides: str) -> list[str]:
    """The texts of the header of `ROWS`."""
    return [text for ((_, text),) in MadeHeaders((provenance(TAG, **sides),), ROWS).to_list()]


def test_what_is_written_is_what_is_read() -> None:
    texts = written(left="", right="has_right")

    found = provenance_of(headers(*(text.encode() for text in texts)))

    assert texts == [f"1 0:5 3:7 {TAG}", f"1 12:9000000000 - {TAG}"]
    assert found.rows() == [("0:5", "3:7", str(TAG)), ("12:9000000000", None, str(TAG))]
    assert positions_in(found["left"]).rows() == [(0, 5), (12, 9_000_000_000)]
    assert positions_in(found["right"]).rows() == [(3, 7), (None, None)]
    assert tags_in(found["batch"]).rows() == [(TAG.origin, 7)] * 2


def test_a_side_may_be_missing_and_so_may_the_batch() -> None:
    assert written(left="") == [f"1 0:5 - {TAG}", f"1 12:9000000000 - {TAG}"]
    assert provenance_of(headers(b"1 - 2:3 -", b"1 - - ab:1")).rows() == [(None, "2:3", None), (None, None, "ab:1")]


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"1", b"1 0:1 - ab:1 ", b" 1 0:1 - ab:1", b"1 0:1 - ab:1 x", b"1  0:1 - ab:1", b"1 0:1 ab:1"),
        *(b"2 0:1 - ab:1", b"11 0:1 - ab:1", b"1 0:1 - ab:1\n"),
        *(b"1 : - ab:1", b"1 1: - ab:1", b"1 :1 - ab:1", b"1 a:1 - ab:1", b"1 1:2:3 - ab:1", b"1 -1:2 - ab:1"),
        *(b"1 \xff:1 - ab:1", b"1 \xd9\xa1:1 - ab:1", b"1 0:1 1: ab:1", b"1 0:1234567890123456789 - ab:1"),
        *(b"1 0:1 - :1", b"1 0:1 - ab:", b"1 0:1 - ab:b", b"1 0:1 - ab:1:2", b"1 0:1 - ab:" + b"9" * 5_000, None),
    ],
)
def test_a_header_of_another_form_says_nothing(value: bytes | None) -> None:
    """No part of it: neither a position nor a batch."""
    found = provenance_of(headers(value, b"1 0:1 - ab:1"))

    assert found.rows() == [(None, None, None), ("0:1", None, "ab:1")]
    assert tags_in(found["batch"]).rows() == [(None, None), ("ab", 1)]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=30))))
def test_no_header_of_another_program_is_an_error(values: list[bytes | None]) -> None:
    found = provenance_of(headers(*values))

    assert len(found) == len(positions_in(found["left"])) == len(tags_in(found["batch"])) == len(values)


@given(st.text(), st.text(), st.integers(0, 10**18 - 1))
def test_a_tag_survives_its_text(job: str, generation: str, number: int) -> None:
    """Whatever the names."""
    tag = BatchTag.of(job, generation, number)

    assert BatchTag.parse(str(tag)) == tag
    assert provenance_of(headers(f"1 0:1 - {tag}".encode()))["batch"].to_list() == [str(tag)]
    assert tag.covers(tag)


def test_tags_distinguish_jobs_generations_and_batches() -> None:
    """Later batches of the same generation are covered, because a checkpoint may have gone back."""
    others = [
        BatchTag.of("other", "generation", 7),
        BatchTag.of("job", "later", 7),
        BatchTag.of("job", "generation", 6),
    ]

    assert [TAG.covers(other) for other in (*others, None)] == [False] * 4
    assert TAG.covers(BatchTag.of("job", "generation", 8))
    assert BatchTag.of("ab", "c", 1) != BatchTag.of("a", "bc", 1)
