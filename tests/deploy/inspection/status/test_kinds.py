"""`teacup status` of every kind of job: checkpoints as Spark would have left them, topics on a real broker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import yaml

from dedup.topic.source import Ranges, following
from deploy.checkpoint.verdicts import save
from deploy.inspection.status.inspect import inspect_all
from deploy.inspection.status.row import State
from deploy.jobfile.job import FeederJob, JoinJob
from deploy.jobfile.load import load_job
from joins.lookup.feed.spec import FedRange, FeedBatch
from joins.lookup.source import CONSUMER, STORE, begin
from joins.lookup.unjoined.expired import Snapshot, Verdicts
from joins.plan.readable import EndOffsets
from joins.spec import JoinSpec
from teacup.base.now import wall_ms
from teacup.kafka.log.broker_log import BrokerLog
from tests.conftest import TopicFactory
from tests.support.sparkjoin import Put, produce

STORAGE = {"url": "http://127.0.0.1:9", "namespace": "right"}


def committed(checkpoint: Path, end: Mapping[str, Any]) -> None:
    """A batch in Spark's logs."""
    for log, text in (("offsets", f"v1\n{{}}\n{json.dumps(dict(end))}"), ("commits", "v1\n{}")):
        (checkpoint / log).mkdir(parents=True)
        (checkpoint / log / "0").write_text(text)


def written(folder: Path, name: str, **content: Any) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, "checkpoint": str(folder / name), **content}))
    return path


def test_a_deduplicator_has_no_event_times(kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path) -> None:
    """Its lag, and its last batch."""
    source, out = topic_factory(2), topic_factory(2)
    produce(kafka, source, [Put(0, b"k", 5), Put(1, b"k", 5)])
    path = written(tmp_path, "d", kind="dedup", kafka=kafka, source={"topic": source}, output={"topic": out})
    with closing(BrokerLog(source, kafka)) as log:
        committed(tmp_path / "d", following({}, log.topic_id(), log.ends(), Ranges(source, kafka, 99, "earliest")))
    produce(kafka, source, [Put(0, b"k", 5)])

    (row,) = inspect_all([path])

    assert (row.problem, row.state, row.lag) == ("", State.STOPPED, {"source": 1})
    assert row.batch is not None
    assert row.batch.number == 1
    assert abs((row.batch.at_ms or 0) - wall_ms()) < 600_000
    assert (row.event_time_lag.behind_ms, row.event_time_lag.held) == (None, ())


def test_a_feeder_is_behind_by_what_it_has_not_stored(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """Its store is not asked."""
    right, now = topic_factory(1), wall_ms()
    produce(kafka, right, [Put(0, b"k", now - 90_000), Put(0, b"k", now - 60_000)])
    path = written(tmp_path, "f", kind="feeder", kafka=kafka, right={"topic": right}, storage=STORAGE)
    job = load_job(path)
    assert isinstance(job, FeederJob)
    committed(tmp_path / "f", FeedBatch(3, now, job.spec.identity(), "id", "s", {0: FedRange(0, 1)}).to_json())

    (row,) = inspect_all([path])

    assert (row.problem, row.lag) == ("", {"right": 1})
    assert 60_000 <= (row.event_time_lag.behind_ms or 0) < 90_000


def test_a_lookup_join_waits_for_its_store_and_has_a_row_for_its_unjoined_records(
    kafka: dict[str, str], topic_factory: TopicFactory, tmp_path: Path
) -> None:
    """The Data Delay API is not asked: what the last batch knew counts."""
    left, right, out, unjoined = (topic_factory(1) for _ in range(4))
    produce(kafka, left, [Put(0, b"k", wall_ms())])
    produce(kafka, right, [Put(0, b"k", wall_ms()) for _ in range(3)])
    path = written(
        tmp_path,
        "l",
        kind="lookup-join",
        kafka=kafka,
        left={"topic": left},
        right={"topic": right},
        join={"before": "1m"},
        output={"topic": out},
        topics={"unjoined": unjoined},
        storage=STORAGE,
        delay={"url": "http://127.0.0.1:9", "consumer": "feeder"},
    )
    job = load_job(path)
    assert isinstance(job, JoinJob)
    assert isinstance(job.spec, JoinSpec)
    with closing(BrokerLog(left, kafka)) as log:
        first = begin(job.spec, EndOffsets(wall_ms(), log.ends(), {}), log, {CONSUMER: "c", STORE: "s"})
    committed(tmp_path / "l", first.to_json())

    (row,) = inspect_all([path])

    assert (row.problem, row.lag, row.event_time_lag.exact) == ("", {"left": 1}, False)
    assert [held.cause for held in row.event_time_lag.held] == ["data delay"]
    save(job.checkpoint, Verdicts("g", "j", {}, 0, {0: 1}, {0: 4}, (Snapshot({}, {}),)))
    _, more = inspect_all([path])
    assert (more.name, more.problem, more.lag) == ("l.unjoined", "", {"right": 2})
    assert more.batch is not None
    assert more.batch.number == 4
