"""A job file without a key means what the library means without an argument."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.jobfile.load import load_job
from joins.spec_base import REQUIRED

COMMON = {"name": "j", "kafka": {"bootstrap.servers": "one:9092"}, "checkpoint": "/state/j"}
JOIN = {"left": {"topic": "l"}, "right": {"topic": "r"}, "join": {"before": "1m"}, "output": {"topic": "o"}}
STORAGE = {"url": "http://s:1", "namespace": "n"}
MINIMAL = {
    "window-join": JOIN,
    "lookup-join": {**JOIN, "storage": STORAGE, "delay": {"url": "http://d:1", "consumer": "c"}},
    "feeder": {"right": {"topic": "r"}, "storage": STORAGE},
    "dedup": {"source": {"topic": "s"}, "output": {"topic": "o"}},
}
DEDUPLICATED = {**JOIN, "output": {"topic": "o", "delivery": "at-least-once", "deduplicate": {}}}

NOT_THE_SAME = {
    "kafka",  # required in a file, where there is no other way to say where the brokers are
    "spark",  # a file starts Spark, a program has it already
    "producer",  # a file's producer gives up as early as a restarted job can wait
    "within",  # what an id of another job means depends on the kind of id
    "source",  # a file says by its kind where right is kept
    "deduplicate",
    "exactly_once",
}
"""What a file has otherwise, on purpose; the last two are those of `DEDUPLICATED`."""


def described(value: Any) -> Iterator[Any]:
    """Every description (a dataclass) in a job."""
    if is_dataclass(value):
        yield value
        for field in fields(value):
            yield from described(getattr(value, field.name))


@pytest.mark.parametrize(
    ("kind", "keys"), [*MINIMAL.items(), ("window-join", DEDUPLICATED)], ids=[*MINIMAL, "deduplicated"]
)
def test_the_defaults_of_a_file_are_those_of_the_library(kind: str, keys: dict[str, Any], tmp_path: Path) -> None:
    """For every description in a job of each kind."""
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**COMMON, "kind": kind, **keys}), encoding="utf-8")

    job = load_job(path, {})

    otherwise = NOT_THE_SAME | ({"max_records"} if keys is DEDUPLICATED else set())  # it reads them again
    compared = 0
    for description in described(job):
        for field in fields(description):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if default not in (MISSING, REQUIRED) and field.name not in otherwise:
                assert getattr(description, field.name) == default, f"{type(description).__name__}.{field.name}"
                compared += 1
    assert compared > 5
