"""No key of a job file is ignored: each one changes the job."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import certifi
import pytest
import yaml

from deploy.jobfile.job import CommonJob
from deploy.jobfile.kinds import KINDS
from deploy.jobfile.load import load_job
from deploy.jobfile.reference import markdown_table

COMMON: dict[str, Any] = {
    "name": "clicks",
    "kafka": {"bootstrap.servers": "one:9092"},
    "checkpoint": "/state/clicks",
    "metrics": {},
    "lineage": {},
}
JOIN = {
    "left": {"topic": "clicks"},
    "right": {"topic": "impressions"},
    "join": {"before": "10m"},
    "output": {"topic": "joined", "delivery": "at-least-once"},
}
SELECT = {"select": {"key": "key", "value": "left_value", "headers": {"id": "key"}}, "deduplicate": {"header": "id"}}
STORAGE = {"url": "http://one:1", "namespace": "impressions"}
GOOD: dict[str, dict[str, Any]] = {
    "window-join": JOIN | {"output": JOIN["output"] | SELECT},
    "lookup-join": JOIN
    | {"output": JOIN["output"] | SELECT, "storage": STORAGE, "delay": {"url": "http://one:2", "consumer": "feeder"}},
    "feeder": {"right": {"topic": "impressions"}, "storage": STORAGE},
    "dedup": {"source": {"topic": "clicks"}, "output": {"topic": "joined"}},
}
OTHER: dict[str, Any] = {
    "name": "other",
    "kafka": {"bootstrap.servers": "two:9092", "linger.ms": 1},
    "topic": "another",
    "registry": {"url": "http://two:8081"},
    "time": "kafka",
    "time_unit": "us",
    "time_zone": "UTC",
    "tombstones": "skip",
    "where": {"header:kind": "one"},
    "keep": ["header:kept"],
    "format": "json",
    "policy": "all",
    "type": "inner",
    "path": "shuffled",
    "buckets": 9,
    "idle": "hold",
    "start": "latest",
    "outliers": 3,
    "records_per_batch": 7,
    "on_data_loss": "continue",
    "trigger": "available_now",
    "checkpoint": "/state/other",
    "spark": {"master": "local[3]"},
    "log": "json",
    "metrics": None,
    "lineage": None,
    "port": 9999,
    "host": "0.0.0.0",
    "otlp": "http://two:4318",
    "window_folder": "/fast",
    "window_backup": True,
    "deduplicate": None,
    "header": "other",
    "limit": 99,
    "select": {"key": "null", "value": "key", "headers": {"id": "key"}},
    "key": "header:other",
    "value": "key",
    "headers": {"id": "value"},
    "url": "http://two:3",
    "namespace": "other",
    "ca_bundle": certifi.where(),
    "token": "secret",
    "consumer": "other",
    "keys_per_request": 9,
    "items_per_request": 9,
    "requests_at_once": 9,
    "on_expired": "unmatched",
    "accept_generations": ["g"],
    "id": "key",
    "topics": {"dead_letter": "another"},
    "dead_letter": "another",
    "late": "another",
    "unmatched": "another",
    "unjoined": "another",
}
"""Another value than in the file; keys that are not here take a duration."""

ELSEWHERE = {
    "kind": "chooses the model",
    "include": "names a file; `tests/teacup/base/config/test_included.py`",
    "complete": "needs `trigger: available_now`; `tests/deploy/check/test_to_the_end.py`",
    "left.time": "`$.at` needs `format: json`",
    "right.time": "`$.at` needs `format: json`",
    **{f"{side}.schema": "needs `format: json`; `test_load`" for side in ("left", "right")},
    **{f"{side}.on_mismatch": "needs `schema`; `test_load`" for side in ("left", "right")},
    "right.deletes": "needs `tombstones: delete`; `tests/joins/lookup/feed/test_table.py`",
    "output.delivery": "`deduplicate` needs the other one",
    "output.deduplicate.header": "names one of `headers`",
    "output.deduplicate.expression": "replaces `header`",
}
"""Keys that cannot change alone; `test_load` has them."""


def _keys(kind: str) -> list[str]:
    return [line.split("`")[1] for line in markdown_table(KINDS[kind].keys).splitlines()[2:]]


@pytest.mark.parametrize("kind", GOOD)
def test_each_key_changes_the_job(tmp_path: Path, kind: str) -> None:
    """Whatever the field that it becomes is called."""
    document = COMMON | GOOD[kind] | {"kind": kind}
    before = _loaded(tmp_path, document)

    ignored = [key for key in _changeable(kind) if _loaded(tmp_path, _with_another(document, key)) == before]

    assert len(_changeable(kind)) > 10
    assert ignored == []


def _changeable(kind: str) -> list[str]:
    """The keys that can change alone; a lookup join has no window."""
    no_window = kind == "lookup-join"
    return [key for key in _keys(kind) if key not in ELSEWHERE and not (no_window and key.startswith("window_"))]


def _with_another(document: dict[str, Any], key: str) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    *outer, last = key.split(".")
    place = changed
    for step in outer:
        place = place.setdefault(step, {})
    place[last] = OTHER.get(last, "17m")
    return changed


def _loaded(folder: Path, document: dict[str, Any]) -> CommonJob:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_job(path, {})
