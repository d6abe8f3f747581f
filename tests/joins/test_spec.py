"""What a description refuses, and what it makes of plain texts."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datadelay.watermark import Idle
from dedup.errors import DedupConfigInvalid
from dedup.identity import Identity, Within
from dedup.replay_range import DedupConfig
from joins.errors import SpecError
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.right_source import DelayApi, Log, StorageApi, Store
from joins.spec import BUCKETS, Format, JoinSpec, Policy, Right, Side
from teacup.base.times import LONGEST_MS
from tests.support.making import changed

ABSURD_MS = 9_999_999_999_999 * 86_400_000

SIDE = Side(topic="clicks")
JOIN = JoinSpec(name="j", left=Side(topic="l"), right=Right(topic="r", before_ms=1))
STORAGE = StorageApi(url="http://storage:1", namespace="n")
DELAY = DelayApi(url="http://delay:1", consumer="c")
STORE = Store(storage=STORAGE, delay=DELAY)
FEED_STORAGE = FeedStorage(url="http://storage:1", namespace="n")
FEED = FeedSpec(name="f", right=Side(topic="r"), storage=FEED_STORAGE)

DESCRIPTIONS = [SIDE, JOIN, JOIN.right, STORAGE, DELAY, STORE, FEED_STORAGE, FEED, DedupConfig(), Identity()]
FIELDS = [(description, field.name) for description in DESCRIPTIONS for field in fields(description)]

PLAIN = {str, int, float, bool, type(None), tuple, dict, Policy, Format, Idle, Within}
PLAIN |= {Side, Right, Log, Store, StorageApi, DelayApi, FeedStorage}

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from(
        [*Policy, *Format, *Idle, *Within, SIDE, JOIN.right, STORE, STORAGE, DELAY, FEED_STORAGE, object(), int]
    ),
    st.sampled_from(
        ["last", "json", "hold", "batch", "continue", "unmatched", "latest", "kafka", "$.at", "http://x:1"]
    ),
    st.sampled_from([np.int64(5), np.float64("nan"), np.float32(2), np.str_("all"), np.bool_(True), np.zeros(2)]),
    st.lists(st.text(max_size=3) | st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.integers() | st.none(), max_size=2),
)


@given(st.sampled_from(FIELDS), VALUES)
def test_any_value_gives_a_valid_description_or_an_error_that_names_the_field(
    place: tuple[Any, str], value: object
) -> None:
    """Never a description with a value of another type, and never another error."""
    description, name = place

    try:
        made, refused = replace(description, **{name: value}), None
    except (SpecError, DedupConfigInvalid) as error:
        made, refused = None, str(error)

    if refused is not None:
        assert name in refused
        return
    assert replace(made) == made
    assert type(getattr(made, name)) in PLAIN


@pytest.mark.parametrize("policy", list(Policy))
def test_a_plain_text_means_the_member(policy: Policy) -> None:
    """Policies and formats are compared by identity."""
    spec = changed(JOIN, idle="hold", left=Side(topic="l", format="json", time="$.at"), policy=policy.value)

    assert spec.right.policy is policy
    assert spec.idle is Idle.HOLD
    assert spec.left.format is Format.JSON
    assert spec.identity()["policy"] == policy.value


def test_numbers_of_numpy_become_plain_ones() -> None:
    """They would end up in a checkpoint's JSON."""
    spec = changed(
        JOIN, start=np.int64(5), kafka={"linger.ms": 5, "socket.keepalive.enable": True}, before_ms=np.int64(7)
    )

    assert (type(spec.right.before_ms), type(spec.start)) == (int, int)
    assert spec.kafka == {"linger.ms": "5", "socket.keepalive.enable": "true"}


@pytest.mark.parametrize(("buckets", "records"), [(1, 1_000_000), (11, 1_000_000), (64, 5_760_000), (1_000, 6_000_000)])
def test_a_batch_is_larger_where_many_buckets_share_it(buckets: int, records: int) -> None:
    assert JOIN.records_of_batch(buckets) == records
    assert replace(JOIN, max_records=5).records_of_batch(buckets) == 5


@pytest.mark.parametrize(
    ("name", "value", "give"),
    [
        ("policy", "lst", "'lst' is not allowed; give 'nearest', 'first', 'last' or 'all'"),
        ("policy", None, "None is not allowed; give 'nearest'"),
        ("before_ms", "10m", "'10m' is not allowed; give a whole number of milliseconds"),
        ("before_ms", 1.0, "1.0 is not allowed; give a whole number of milliseconds"),
        ("max_records", True, "True is not allowed; give a whole number, 1 or more"),
        ("left", "clicks", "'clicks' is not allowed; give a Side"),
        ("start", "soon", "'soon' is not allowed; give 'earliest' or 'latest' or whole milliseconds since 1970"),
        ("on_data_loss", "panic", "'panic' is not allowed; give 'stop' or 'continue'"),
        ("name", "a b", "'a b' is not allowed; give a name of"),
        ("kafka", {"sasl.password": ["hidden"]}, "\\*\\*\\* is not allowed; give .* for the property 'sasl.password'"),
    ],
)
def test_a_wrong_value_is_named_with_what_to_give(name: str, value: object, give: str) -> None:
    """Whatever its type."""
    with pytest.raises(SpecError, match=f"^{name}(| of 'r'): {give}") as refused:
        changed(JOIN, **{name: value})

    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("name", ["before_ms", "after_ms", "producer_delay_ms", "max_future_skew_ms", "max_wait_ms"])
def test_a_duration_that_is_none_is_refused_by_name(name: str) -> None:
    """Negative, or so long that sums of times leave 64 bits."""
    for value in (-1, LONGEST_MS + 1, ABSURD_MS):
        with pytest.raises(SpecError, match=f"{name}(| of 'r'): {value} .*[01] or more"):
            changed(JOIN, **{name: value})


@pytest.mark.parametrize("value", [-1, ABSURD_MS])
def test_a_disorder_that_is_none_is_refused_with_its_topic(value: int) -> None:
    """The two sides have the same key."""
    with pytest.raises(SpecError, match=f"disorder_ms of 'clicks': {value} is not allowed"):
        Side(topic="clicks", disorder_ms=value)


def test_a_path_that_names_no_field_is_refused() -> None:
    """It would be found when the first batch reads values."""
    with pytest.raises(SpecError, match="time: '\\$\\[' is not allowed"):
        Side(topic="clicks", time="$[", format="json")


def test_the_longest_duration_is_allowed() -> None:
    """Ten years on each side."""
    spec = changed(JOIN, before_ms=LONGEST_MS, after_ms=LONGEST_MS)

    assert spec.span_ms > LONGEST_MS


def test_a_key_is_one_part_or_several() -> None:
    """However it is written, the same side is equal."""
    assert Side(topic="t", key=["kafka"]) == Side(topic="t")
    assert Side(topic="t", key=["header:a", "kafka"]).key == ("header:a", "kafka")
    assert str(Side(topic="t", key=["header:a", "kafka"]).key_of) == "[header:a, kafka]"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("user", "key of 't': 'user' is not allowed as a key; give 'kafka', the JSON path"),
        ([], "key of 't': a key of 0 parts is not allowed; give 1 to 16"),
        ("$.id", r"format of 't': a key in the payload \('\$\.id'\) needs format 'json'"),
    ],
)
def test_a_key_that_names_nothing_is_refused(key: object, message: str) -> None:
    """With the topic, and what is allowed."""
    with pytest.raises(SpecError, match=message):
        Side(topic="t", key=key)  # type: ignore[arg-type]


def test_both_sides_have_as_many_parts() -> None:
    """Otherwise no key could ever be equal."""
    left, right = Side(topic="l", key=["kafka", "header:h"]), Right(topic="r", before_ms=1)

    with pytest.raises(SpecError, match=r"right\.key: 'kafka' has 1 .*left\.key .* 2"):
        JoinSpec(name="j", left=left, right=right)


@pytest.mark.parametrize(
    ("path", "buckets", "partitions", "cores", "expected"),
    [
        ("direct", None, 3, None, 3),
        ("direct", None, 64, None, BUCKETS),
        ("direct", None, 64, 2, 2),
        ("direct", None, 3, 4, 3),
        ("direct", None, 64, 96, BUCKETS),
        ("direct", 16, 64, 2, 16),
        ("direct", 16, 3, None, 3),
        ("shuffled", None, 64, None, BUCKETS),
        ("shuffled", None, 64, 2, 2),
        ("shuffled", 16, 3, 2, 16),
    ],
)
def test_buckets_are_partitions_up_to_a_number(
    path: str, buckets: int | None, partitions: int, cores: int | None, expected: int
) -> None:
    """And no more than cores, unless the user says how many; on the direct path each has whole partitions."""
    left, right = Side(topic="l"), Right(topic="r", before_ms=1)

    spec = JoinSpec(name="j", left=left, right=right, path=path, buckets=buckets)  # type: ignore[arg-type]

    assert spec.buckets_of(partitions, cores) == expected


def test_what_a_checkpoint_is_bound_to_is_plain_json() -> None:
    """Checkpoints and the digests of receipts hold it: another text would be another join."""
    left = Side(topic="l", key=["kafka", "header:h"])
    keyed = {"key": ["$.a", "$.b"], "keep": ["$.c"], "format": "json", "time": "$.t", "time_unit": "s"}
    right = Right(topic="r", **keyed, before_ms=1, policy="all")  # type: ignore[arg-type]
    spec = JoinSpec(name="j", left=left, right=right)

    assert json.dumps(spec.identity()) == (
        '{"left.topic": "l", "left.key": ["kafka", "header:h"], "left.time": "kafka", "left.time_unit": "ms", '
        '"left.disorder_ms": 1000, "left.format": "bytes", "right.topic": "r", "right.key": ["$.a", "$.b"], '
        '"right.keep": ["$.c"], "right.time": "$.t", "right.time_unit": "s", "right.disorder_ms": 1000, '
        '"right.format": "json", "before_ms": 1, "after_ms": 0, "policy": "all", "outliers": 16}'
    )
    assert replace(spec, left=Side(topic="l"), right=Right(topic="r", before_ms=1)).identity()["left.key"] == ["kafka"]


def test_another_key_is_another_join() -> None:
    """Its checkpoint cannot be continued."""
    right = Right(topic="r", before_ms=1)
    first, other = (JoinSpec(name="j", left=Side(topic="l", key=key), right=right) for key in ("kafka", "header:h"))

    assert first.identity() != other.identity()


def test_only_right_is_kept() -> None:
    """Left is never stored; another choice is another join."""
    rights = [Right(topic="r", keep=keep, before_ms=1) for keep in (None, ["$"])]  # type: ignore[arg-type]
    first, other = (JoinSpec(name="j", left=Side(topic="l"), right=right) for right in rights)

    assert first.identity() != other.identity()
    with pytest.raises(SpecError, match=r"left\.keep is not allowed"):
        JoinSpec(name="j", left=Side(topic="l", keep=("$",)), right=Right(topic="r", before_ms=1, after_ms=1))
    with pytest.raises(SpecError, match=r"keep of 'r': 'price'"):
        Side(topic="r", keep=("price",))
    with pytest.raises(SpecError, match=r"format of 'r': .*'\$\.price'.*'json'"):
        Side(topic="r", keep=("$.price",))


def test_avro_needs_a_registry_and_what_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are said before anything is read."""
    clicks, impressions = Side(topic="l", format=Format.AVRO, key="$.id"), Right(topic="r", before_ms=1)

    def joined(**more: object) -> JoinSpec:
        return JoinSpec(name="j", left=clicks, right=impressions, **more)  # type: ignore[arg-type]

    with pytest.raises(SpecError, match=r"registry: format 'avro' of 'l'"):
        joined()
    spec = joined(registry={"url": "http://r:8081", "basic.auth.user.info": "me:hidden"})
    assert "hidden" not in repr(spec)
    assert "hidden" not in str(spec.identity())
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(SpecError, match=r"pip install 'teacup-joins\[registry\]'"):
        joined(registry={"url": "http://r:8081"})
