"""A job file (YAML) becomes a job: validated completely before anything connects, all errors reported at once.

settings.document.Document -> models of `deploy.jobfile.joinkeys` -> WindowJob, DedupJob or FeederJob
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dedup.identity import Identity, Within
from dedup.replayrange import DedupConfig
from deploy.job import DedupJob, Deduplicate, FeederJob, Output, Select, WindowJob
from deploy.jobfile.feederkeys import FeederKeys, feeder_job
from deploy.jobfile.joinkeys import DedupKeys, EveryKeys, LookupJoinKeys, SideKeys, WindowJoinKeys
from joins.errors import SpecError
from joins.lookup.spec import DelayAt, LookupSpec, StorageAt
from joins.spec import JoinSpec, Side
from kafkaio.headers import LEFT, RIGHT
from settings.document import Document
from settings.keys import Where
from settings.problems import Problems, shown

Job = WindowJob | DedupJob | FeederJob

KINDS: Mapping[str, type[WindowJoinKeys] | type[DedupKeys] | type[FeederKeys]] = {
    "window-join": WindowJoinKeys,
    "lookup-join": LookupJoinKeys,
    "dedup": DedupKeys,
    "feeder": FeederKeys,
}
_TIMEOUTS = {"delivery.timeout.ms", "message.timeout.ms"}  # two names of one property


def load_job(path: Path, environ: Mapping[str, str] = os.environ) -> Job:
    """The job in a file. Raises `SettingsInvalid` with every problem. Connects to nothing."""
    document = Document.read(path, environ)
    kind = document.raw.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        told = f"{shown(document.raw, ('kind',))} is not allowed" if "kind" in document.raw else "is missing"
        others = "" if "kind" in document.raw else " (servers and the collector check their files as they start)"
        raise document.refused([(("kind",), f"{told}; give {' or '.join(KINDS)}{others}"), *document.unset])
    keys = document.as_model(model, also=_topic_clashes(document.values))
    try:
        if isinstance(keys, FeederKeys):
            return feeder_job(keys)
        return dedup_job(keys) if isinstance(keys, DedupKeys) else window_job(keys)
    except SpecError as error:
        raise document.refused([((), str(error))]) from error


def window_job(keys: WindowJoinKeys) -> WindowJob:
    """The validated keys as a job; SpecError for what only the join itself rejects."""
    select = keys.output.select
    return WindowJob(
        spec=lookup_spec(keys) if isinstance(keys, LookupJoinKeys) else JoinSpec(**_join(keys)),
        output=Output(
            topic=keys.output.topic,
            kafka=_producer(keys),
            select=None if select is None else Select(key=select.key, value=select.value, headers=select.headers),
            exactly_once=keys.output.delivery == "exactly-once",
            deduplicate=_deduplicate(keys),
            **keys.topics.model_dump(),
        ),
        checkpoint=keys.checkpoint,
        trigger_ms=keys.trigger.every if isinstance(keys.trigger, EveryKeys) else None,
        spark=keys.spark,
        window_folder=keys.window_folder,
        json_log=keys.log == "json",
    )


def lookup_spec(keys: LookupJoinKeys) -> LookupSpec:
    """The validated keys as the description of a lookup join."""
    storage, delay = keys.storage, keys.delay
    return LookupSpec(
        **_join(keys),
        storage=StorageAt(
            url=storage.url,
            namespace=storage.namespace,
            token=storage.token,
            connect_timeout_s=storage.connect_timeout / 1000,
            read_timeout_s=storage.read_timeout / 1000,
            keys_per_request=storage.keys_per_request,
            requests_at_once=storage.requests_at_once,
            unreachable_for_s=storage.unreachable_for / 1000,
        ),
        delay=DelayAt(
            url=delay.url,
            consumer=delay.consumer,
            token=delay.token,
            connect_timeout_s=delay.connect_timeout / 1000,
            read_timeout_s=delay.read_timeout / 1000,
        ),
        on_expired=keys.on_expired,
        accepted_generations=keys.accept_generations,
        right_is_judged=keys.topics.unjoined is not None,
    )


def _join(keys: WindowJoinKeys) -> dict[str, Any]:
    """What both flavours of the join have in common."""
    return {
        "name": keys.name,
        "left": _side(keys.left),
        "right": _side(keys.right),
        "before_ms": keys.join.before,
        "after_ms": keys.join.after,
        "policy": keys.join.policy,
        "producer_delay_ms": keys.producer_delay,
        "max_future_skew_ms": keys.max_future_skew,
        "outliers": keys.outliers,
        "idle": keys.idle,
        "max_wait_ms": keys.max_wait,
        "max_records": keys.records_per_batch,
        "start": keys.start,
        "on_data_loss": keys.on_data_loss,
        "kafka": keys.kafka,
    }


def dedup_job(keys: DedupKeys) -> DedupJob:
    """The validated keys as a job."""
    return DedupJob(
        name=keys.name,
        source=keys.source.topic,
        output=keys.output.topic,
        kafka=keys.kafka,
        producer=_producer(keys),
        identity=_identity(keys.id),
        window_ms=keys.window,
        config=DedupConfig(limit=keys.limit, settle_ms=_settle_ms(keys)),
        start=keys.start,
        max_records=keys.records_per_batch,
        checkpoint=keys.checkpoint,
        trigger_ms=keys.trigger.every if isinstance(keys.trigger, EveryKeys) else None,
        spark=keys.spark,
        json_log=keys.log == "json",
    )


def _producer(keys: WindowJoinKeys | DedupKeys) -> dict[str, str]:
    """Properties of the producer; a restarted job that deduplicates must wait as long as the producer may retry."""
    given = keys.output.kafka
    waits = isinstance(keys, DedupKeys) or keys.output.deduplicate is not None
    if not waits or _TIMEOUTS & {*keys.kafka, *given}:
        return given
    return {"delivery.timeout.ms": str(DedupConfig().settle_ms), **given}


def _identity(asked: str) -> Identity:
    """A position is unique only within one generation of the job that wrote it; other ids are the user's."""
    if asked == "key":
        return Identity(key=True)
    header = None if asked == "positions" else asked.removeprefix("header:")
    return Identity(header, within=Within.GENERATION if header in (None, LEFT, RIGHT) else Within.ANYWHERE)


def _deduplicate(keys: WindowJoinKeys) -> Deduplicate | None:
    asked = keys.output.deduplicate
    if asked is None:
        return None
    return Deduplicate(
        header=asked.header,
        expression=asked.expression,
        config=DedupConfig(
            limit=asked.limit, lookback_ms=asked.lookback, quiet_ms=asked.quiet, settle_ms=_settle_ms(keys)
        ),
    )


def _settle_ms(keys: WindowJoinKeys | DedupKeys) -> int:
    kafka = {**keys.kafka, **_producer(keys)}
    return next(int(kafka[name]) for name in sorted(_TIMEOUTS) if name in kafka)


def _side(keys: SideKeys) -> Side:
    return Side(topic=keys.topic, time=keys.time, disorder_ms=keys.disorder, format=keys.format)


def _topic_clashes(document: Mapping[str, Any]) -> Problems:
    """An output that is an input would feed the join with its own rows; side outputs would mix with the rows."""
    inputs = {f"{side}.topic": _keys(document, side).get("topic") for side in ("left", "right", "source")}
    output = _keys(document, "output").get("topic")
    outputs: dict[Where, Any] = {("output", "topic"): output}
    outputs |= {("topics", name): topic for name, topic in _keys(document, "topics").items()}
    problems: Problems = []
    if inputs["left.topic"] is not None and inputs["left.topic"] == inputs["right.topic"]:
        problems.append((("right", "topic"), "is left.topic as well; a join needs two topics"))
    for where, topic in outputs.items():
        for key, taken in inputs.items():
            if topic is not None and topic == taken:
                problems.append((where, f"is {key} as well; rows must not come back as records, give another topic"))
        if where != ("output", "topic") and topic is not None and topic == output:
            problems.append((where, "is output.topic as well; give a topic that holds no rows"))
    return problems


def _keys(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The mapping at a key; empty if there is none."""
    found = document.get(name)
    return found if isinstance(found, dict) else {}
