"""What a topic would refuse is changed for the records concerned, and for no others."""

from __future__ import annotations

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from joins.rows.outgoing import Outgoing
from teacup.kafka.records.limits import TopicLimits, limits_from, record_bytes, restamped
from teacup.kafka.write.templates import Form, ListedHeaders, TextHeader, TextPiece, listed

NOW_MS = 1_700_000_000_000
TIMES = st.lists(st.none() | st.just(0) | st.integers(NOW_MS - 200_000, NOW_MS + 200_000), min_size=1, max_size=8)


def outgoing(times: list[int | None], values: list[str]) -> Outgoing:
    """With one header of its own each, and a text for a value."""
    rows = pl.DataFrame(
        {"key": [b"k"] * len(times), "text": values, "at": times},
        schema={"key": pl.Binary, "text": pl.String, "at": pl.Int64},
    ).with_columns(own=listed([[("own", b"h")]] * len(times)))
    value = (TextPiece("<"), TextPiece(column="text", form=Form.STRING), TextPiece(">"))
    return Outgoing(rows, "key", value, (ListedHeaders("own"), TextHeader("teacup", (TextPiece("1 0:1 - -"),))), "at")


def limits(size: int = 1_000_000, before_ms: int | None = 100_000) -> TopicLimits:
    return TopicLimits("out", size, 1_000_000, before_ms=before_ms, after_ms=100_000)


@given(TIMES, st.sampled_from([100_000, None]))
def test_times_are_those_that_the_topic_accepts(times: list[int | None], before_ms: int | None) -> None:
    """The same as one by one, and again for the next topic."""
    out = outgoing(times, ["v"] * len(times))
    topic = limits(before_ms=before_ms)
    kept, headers = restamped(times, out.headers.to_list(), topic, NOW_MS)

    changed = out.restamped(topic, NOW_MS)
    later = changed.restamped(limits(), NOW_MS + 500_000)

    assert (changed.times.to_list(), changed.headers.to_list()) == (kept, headers)
    again, twice = restamped(kept, headers, limits(), NOW_MS + 500_000)
    assert (later.times.to_list(), later.headers.to_list()) == (again, twice)


def test_a_topic_that_takes_any_time_changes_none() -> None:
    """Kafka's default for times in the past is the largest number that there is."""
    most = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    any_time = limits_from("out", {"max.message.bytes": "1000000", **most}, {}, 1_000_000)
    out = outgoing([1, 2**61, None], ["v"] * 3)

    assert out.restamped(any_time, NOW_MS).times.to_list() == [1, 2**61, NOW_MS]


@given(st.lists(st.text(max_size=60), min_size=1, max_size=6))
def test_what_is_too_large_is_found(values: list[str]) -> None:
    """However much longer a text becomes in JSON; a copy is shortened, its neighbours are as they were."""
    out = outgoing([NOW_MS] * len(values), values)
    narrow = limits(1_100)
    large = [i for i in range(len(out)) if narrow.limit_passed(*out.record(i)) is not None]

    short = out.shortened(limits(250), lambda i: f"record {i}")

    assert set(large) <= set(out.perhaps_too_large(narrow))
    for i in range(len(out)):
        before, after = out.record(i), short.record(i)
        assert record_bytes(*after) <= max(250, record_bytes(*before))
        if record_bytes(*before) <= 250:
            assert after == (before[0], after[1], [(name, encoded(value)) for name, value in before[2]])
            assert encoded(after[1]) == encoded(before[1])


def encoded(value: object) -> object:
    return value.encode() if isinstance(value, str) else value
