"""Durations as texts in a program: what they become, and what is refused."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.errors import SpecError
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.right_source import DelayApi, StorageApi
from joins.spec import JoinSpec, Right, Side
from teacup.base.times import duration_ms

API: dict[str, Any] = {"url": "http://one:1"}
NEEDED: dict[type[Any], dict[str, Any]] = {
    Side: {"topic": "clicks"},
    JoinSpec: {"name": "j", "left": Side(topic="l"), "right": Right(topic="r", before_ms=1)},
    Right: {"topic": "r"},
    StorageApi: {**API, "namespace": "n"},
    DelayApi: {**API, "consumer": "c"},
    FeedStorage: {**API, "namespace": "n"},
}
NEEDED[FeedSpec] = {"name": "f", "right": Side(topic="r"), "storage": FeedStorage(**NEEDED[FeedStorage])}
"""What each kind of spec needs besides `before`."""

DURATIONS = [
    (kind, field.name) for kind in NEEDED for field in fields(kind) if field.name.rpartition("_")[2] in ("ms", "s")
]


def made(kind: type[Any], **durations: object) -> Any:
    """A spec of the kind with these durations."""
    before = {"before": "1m"} if kind is Right and not {"before", "before_ms"} & set(durations) else {}
    return kind(**NEEDED[kind], **before, **durations)


def right_of(**durations: object) -> Right:
    return Right(**NEEDED[Right], **durations)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "number"), DURATIONS)
def test_each_duration_may_be_given_as_a_text(kind: type[Any], number: str) -> None:
    """By the key that it has in a job file; in what unit the field counts does not matter."""
    text, _, unit = number.rpartition("_")

    spec = made(kind, **{text: "1m 30s"})

    assert getattr(spec, number) == (90_000 if unit == "ms" else 90.0)
    assert spec == made(kind, **{number: getattr(spec, number)})


@pytest.mark.parametrize("kind", NEEDED)
def test_a_text_stands_right_below_its_number(kind: type[Any]) -> None:
    """`take_texts` gets them in this order."""
    arguments = list(inspect.signature(kind).parameters)

    for number in (name for known, name in DURATIONS if known is kind):
        assert arguments[arguments.index(number) + 1] == number.rpartition("_")[0]


@pytest.mark.parametrize(("kind", "number"), DURATIONS)
def test_a_duration_that_is_given_twice_is_refused(kind: type[Any], number: str) -> None:
    """Also if the two say the same, or the number is the default."""
    text = number.rpartition("_")[0]
    default = getattr(made(kind), number)
    value = 5 if default is None else default

    with pytest.raises(SpecError, match=f"^{text}: '5s' is given beside {number}: {value}; give one of them"):
        made(kind, **{text: "5s", number: value})


@pytest.mark.parametrize(
    ("durations", "message"),
    [
        ({"before": "10"}, "before of 'r': '10' is not allowed; give a duration with its unit: 250ms, 10s"),
        ({"before": 600_000}, "before of 'r': 600000 is not allowed; give a duration with its unit: 250ms, 10s"),
        (
            {"before": "-1s"},
            "before of 'r': '-1s' is not allowed; a duration is not negative; give 0 or more, such as 10s",
        ),
        ({"before": "3651d"}, "before of 'r': '3651d' is not allowed; give at most 3650d"),
        ({"before": "1m", "after": "0.5ms"}, "after of 'r': '0.5ms' is not allowed; give whole milliseconds"),
        ({"before": "1m", "max_wait": "0s"}, "max_wait of 'r': '0s' is not allowed; give more than 0"),
        ({}, "before of 'r' is missing; give before=\"10m\", or before_ms=600_000"),
    ],
)
def test_a_wrong_text_is_named_with_what_to_give(durations: dict[str, object], message: str) -> None:
    """By its key, not by that of the number."""
    with pytest.raises(SpecError) as refused:
        right_of(**durations)

    assert str(refused.value).startswith(message)


def test_a_message_says_whose_duration_it_is() -> None:
    """Two sides, and two APIs, have the same keys."""
    with pytest.raises(SpecError, match=r"^disorder of 'clicks': 'soon'"):
        Side(topic="clicks", disorder="soon")
    with pytest.raises(SpecError, match=r"^storage read_timeout: '0s'"):
        StorageApi(url="http://one:1", namespace="n", read_timeout="0s")
    with pytest.raises(SpecError, match=r"^delay connect_timeout: '2'"):
        DelayApi(url="http://one:1", consumer="c", connect_timeout="2")


@given(st.none() | st.text() | st.integers() | st.floats() | st.binary() | st.lists(st.text()))
def test_any_value_is_a_duration_or_refused_by_name(value: Any) -> None:
    """Never another error, and never another duration than in a job file."""
    try:
        spec, refused = right_of(before=value), ""
    except SpecError as error:
        spec, refused = None, str(error)

    if spec is None:
        assert refused.startswith("before")
    else:
        assert spec.before_ms == duration_ms(value)


def test_a_spec_that_was_given_texts_is_like_any_other() -> None:
    """Copies change other fields and numbers, and tasks get it by pickle."""
    spec = right_of(before="10m", max_wait="1h")

    assert replace(spec, topic="other").before_ms == 600_000
    assert replace(spec, before_ms=7).before_ms == 7
    assert pickle.loads(pickle.dumps(spec)) == spec
    with pytest.raises(SpecError, match=r"`dataclasses\.replace` takes before_ms"):
        replace(spec, before="5m")
