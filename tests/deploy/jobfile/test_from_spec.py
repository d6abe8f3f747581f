"""An option of a job file is declared once: what the spec says of it is not said again by the key."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import ValidationError

import deploy.jobfile
from dedup.replay_range import DedupConfig
from deploy.jobfile.job import (
    CommonJob,
    DedupJob,
    Deduplicate,
    FeederJob,
    JoinJob,
    LineageTo,
    MetricsAt,
    Output,
    Select,
)
from deploy.jobfile.values import like, of
from joins.lookup.feed.spec import FeedSpec, FeedStorage
from joins.right_source import DelayApi, StorageApi, Store
from joins.spec import JoinSpec, Right, Side, Wait
from joins.spec_base import REQUIRED
from teacup.base.config.keys import Duration, Keys, Seconds
from teacup.base.fields import Between, Count

JOBS = (CommonJob, JoinJob, DedupJob, FeederJob, Output, Select, Deduplicate, DedupConfig, MetricsAt, LineageTo)
SPECS = (Side, Right, JoinSpec, Store, StorageApi, DelayApi, FeedSpec, FeedStorage)
BOUNDS = {"ge", "gt", "le", "lt", "min_length", "max_length", "pattern"}
OTHERWISE = {"spark": "a file starts Spark, a program has it already"}
"""Defaults that differ on purpose."""

SOURCES = {path.name: path.read_text(encoding="utf-8") for path in Path(deploy.jobfile.__path__[0]).glob("*.py")}


def with_default() -> set[str]:
    """The names of all fields that have a default."""
    return {
        option.name
        for spec in (*JOBS, *SPECS)
        for option in fields(spec)
        if option.default_factory is not MISSING or option.default not in (MISSING, REQUIRED)
    }


def declared_again(source: str) -> list[str]:
    """The keys of models that have a default or bounds of their own, though a spec has a field of their name."""
    known = with_default()
    return [
        name
        for name, given in _keys(source)
        if name in known and name not in OTHERWISE and given & {"default", *BOUNDS}
    ]


def _keys(source: str) -> Iterator[tuple[str, set[str]]]:
    """Each key that is a `Field`, also within its type, and the arguments that are given; a bare value is a default."""
    for model in ast.walk(ast.parse(source)):
        if not isinstance(model, ast.ClassDef) or not any("Keys" in ast.unparse(base) for base in model.bases):
            continue
        for key in model.body:
            if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name):
                calls = [
                    call
                    for call in ast.walk(key)
                    if isinstance(call, ast.Call) and re.match(r"Field$|of\(", ast.unparse(call.func))
                ]
                own = [call for call in calls if ast.unparse(call.func) == "Field"]
                given = {str(argument.arg) for call in own for argument in call.keywords}
                yield key.target.id, given if calls or key.value is None else {"default"}


@pytest.mark.parametrize("name", SOURCES)
def test_no_key_declares_what_its_spec_declares(name: str) -> None:
    """Not a default, and no bounds."""
    assert declared_again(SOURCES[name]) == []


def test_the_models_are_looked_at() -> None:
    """The walk would pass on an empty folder."""
    keys = {name for source in SOURCES.values() for name, _ in _keys(source)}

    assert {"before_ms", "max_wait_ms", "limit", "disorder_ms", "unreachable_for_s", "window_ms"} <= keys
    assert len(keys & with_default()) > 30


@pytest.mark.parametrize(
    "key",
    [
        'producer_delay_ms: Duration = Field(default=as_written("10s"), description="d")',
        "max_wait_ms: Annotated[Duration, Field(gt=0)] | None = of(JoinSpec).max_wait_ms('d')",
        "outliers: int = 16",
    ],
)
def test_a_second_declaration_is_found(key: str) -> None:
    """However it is written."""
    assert declared_again(f"class SomeKeys(JobKeys):\n    {key}\n") == [key.partition(":")[0]]


@dataclass(frozen=True)
class Spec:
    """A field of each kind."""

    text: str
    number: Count = 3
    few: Annotated[int, Between("a number from 2 to 4", least=2, most=4)] = 2
    pause_ms: Wait = 90_000
    none_ms: int = 0
    time_out_s: Annotated[float, Between("seconds", above=0)] = 1.5
    never_ms: Wait | None = None
    names: dict[str, str] = field(default_factory=dict)
    needed_ms: int = REQUIRED


class SpecKeys(Keys):
    """The same as keys."""

    text: str = of(Spec).text("d")
    number: int = of(Spec).number("d")
    few: int = of(Spec).few("d")
    pause_ms: Duration = of(Spec).pause_ms("d")
    none_ms: Duration = of(Spec).none_ms("d")
    time_out_s: Seconds = of(Spec).time_out_s("d")
    never_ms: Annotated[Duration, like(Wait)] | None = of(Spec).never_ms("d")
    names: dict[str, str] = of(Spec).names("d")
    needed_ms: Duration = of(Spec).needed_ms("d")


def test_a_key_has_the_default_of_its_field_as_a_file_has_it() -> None:
    """A duration with its unit, under a name without one; what the spec needs is needed."""
    fields_of = SpecKeys.model_fields.items()

    assert {key.alias or name: key.default for name, key in fields_of if not key.is_required()} == {
        "number": 3,
        "few": 2,
        "pause": "1m 30s",
        "none": "0s",
        "time_out": "1s 500ms",
        "never": None,
        "names": {},
    }
    assert [key.alias or name for name, key in fields_of if key.is_required()] == ["text", "needed"]


def test_the_defaults_become_those_of_the_spec_again() -> None:
    """`10s` in a file is 10,000 in a program."""
    keys = SpecKeys.model_validate({"text": "x", "needed": "1s"})

    assert Spec(**dict(keys) | {"needed_ms": REQUIRED}) == Spec("x")


@pytest.mark.parametrize(
    ("key", "value"),
    [("number", 0), ("few", 1), ("few", 5), ("pause", "0s"), ("time_out", "0"), ("never", "0s")],
)
def test_a_key_has_the_bounds_of_its_field(key: str, value: object) -> None:
    """Those of its declared type."""
    with pytest.raises(ValidationError) as refused:
        SpecKeys.model_validate({"text": "x", "needed": "1s", key: value})

    assert [error["loc"][0] for error in refused.value.errors()] == [key]
