"""A job file (YAML) becomes a job: validated completely before anything connects, all errors reported at once.

    load_yaml -> with_env (`${NAME}`) -> models of `deploy.jobmodel` -> WindowJob

An error names the key by its dotted path, the value and what is allowed. The value is shown as it is in the file, so
that values from the environment are never echoed; values of secret properties, of unknown keys, and texts in place of a
mapping are not shown at all.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from datadelay.errors import ConfigInvalid
from datadelay.settings import Problems, dotted, load_yaml, with_env
from dedup.identity import Identity, Within
from dedup.replayrange import DedupConfig
from deploy.feedermodel import FeederKeys, feeder_job
from deploy.job import DedupJob, Deduplicate, FeederJob, Output, Select, WindowJob
from deploy.jobmodel import DedupKeys, EveryKeys, LookupJoinKeys, SideKeys, WindowJoinKeys
from joins.errors import SpecError
from joins.lookup.spec import DelayAt, LookupSpec, StorageAt
from joins.spec import JoinSpec, Side
from kafkaio.client import masked
from kafkaio.headers import LEFT, RIGHT

Where = tuple[str | int, ...]

Job = WindowJob | DedupJob | FeederJob

KINDS: Mapping[str, type[WindowJoinKeys] | type[DedupKeys] | type[FeederKeys]] = {
    "window-join": WindowJoinKeys,
    "lookup-join": LookupJoinKeys,
    "dedup": DedupKeys,
    "feeder": FeederKeys,
}
_LONGEST_SHOWN = 80
_TIMEOUTS = {"delivery.timeout.ms", "message.timeout.ms"}  # two names of one property


class JobFileError(ConfigInvalid):
    """An invalid job file; each of `problems` is a line, `where: what`."""

    def __init__(self, path: Path, problems: list[str]) -> None:
        count = "1 error" if len(problems) == 1 else f"{len(problems)} errors"
        super().__init__("\n  ".join([f"{path}: {count}", *problems]))
        self.path = path
        self.problems = tuple(problems)


def load_job(path: Path, environ: Mapping[str, str] = os.environ) -> Job:
    """The job in a file; raises `JobFileError` with every problem. Connects to nothing."""
    try:
        raw = load_yaml(path)
    except ConfigInvalid as error:
        raise JobFileError(path, [str(error)]) from error
    document, missing = with_env(raw, environ)
    kind = raw.get("kind")
    model = KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        told = "is missing" if "kind" not in raw else f"{_shown(raw, ('kind',))} is not allowed"
        others = " (servers and the collector check their files as they start)" if "kind" not in raw else ""
        raise JobFileError(path, [f"kind: {told}; give {' or '.join(KINDS)}{others}", *_lines(missing)])
    keys, problems = _validated(model, document, raw, {where for where, _ in missing})
    problems = [*missing, *problems, *_topic_clashes(document)]
    if keys is None or problems:
        raise JobFileError(path, _lines(problems))
    try:
        if isinstance(keys, FeederKeys):
            return feeder_job(keys)
        return dedup_job(keys) if isinstance(keys, DedupKeys) else window_job(keys)
    except SpecError as error:
        raise JobFileError(path, [str(error)]) from error


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


def _validated(
    model: type[WindowJoinKeys] | type[DedupKeys] | type[FeederKeys],
    document: Mapping[str, Any],
    raw: Mapping[str, Any],
    known: set[Where],
) -> tuple[WindowJoinKeys | DedupKeys | FeederKeys | None, Problems]:
    """The keys, or what is wrong with them; places in `known` have already been reported."""
    try:
        return model.model_validate(document), []
    except ValidationError as error:
        found = []
        for one in error.errors(include_url=False, include_context=True):
            where = tuple(step for step in one["loc"] if not str(step).startswith("<"))
            if where not in known:
                found.append((where, _told(model, raw, where, one)))
        return None, found


def _told(model: type[BaseModel], raw: Mapping[str, Any], where: Where, error: ErrorDetails) -> str:
    """What is wrong at a place, and what is allowed there."""
    if error["type"] == "missing":
        meaning = _field_descriptions(_model_at(model, where[:-1])).get(str(where[-1]))
        return "is missing" + (f"; it is: {meaning}" if meaning else "")
    if error["type"] == "extra_forbidden":
        allowed = list(_field_descriptions(_model_at(model, where[:-1])))
        close = difflib.get_close_matches(str(where[-1]), allowed, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        return f"unknown key; {hint}allowed: {', '.join(allowed)}"
    if error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        inner = _model_at(model, where)
        keys = f" with {', '.join(_field_descriptions(inner))}" if inner else " of names to values"
        return f"give a mapping{keys}; this is {_kind_of(_at(raw, where))}"
    message = _allowed(error)
    if message.startswith("is "):
        return message
    if isinstance(_at(raw, where), dict | list) or not _has(raw, where):
        return message
    return f"{_shown(raw, where)} is not allowed: {message}"


def _allowed(error: ErrorDetails) -> str:
    """What a value must be, in our words where pydantic's are meant for programmers."""
    context = error.get("ctx", {})
    in_our_words = {
        "literal_error": "give {expected}",
        "enum": "give {expected}",
        "string_pattern_mismatch": "only letters, digits, dot, underscore and hyphen",
        "string_too_short": "give a text that is not empty",
        "string_too_long": "give at most {max_length} characters",
        "string_type": "give a text; quote what YAML takes for something else",
        "int_type": "give a whole number",
        "int_parsing": "give a whole number",
        "int_from_float": "give a whole number",
        "greater_than_equal": "give {ge} or more",
        "greater_than": "give more than {gt}",
        "less_than_equal": "give {le} or less",
        "tuple_type": "give a list",
        "none_required": "leave it out",
    }
    template = in_our_words.get(error["type"])
    return template.format(**context).replace("'", "") if template else error["msg"].removeprefix("Value error, ")


def _topic_clashes(document: Mapping[str, Any]) -> Problems:
    """An output that is an input would feed the join with its own rows; side outputs would mix with the rows."""
    inputs = {f"{side}.topic": _at(document, (side, "topic")) for side in ("left", "right", "source")}
    output = _at(document, ("output", "topic"))
    named = _at(document, ("topics",))
    outputs: dict[Where, Any] = {("output", "topic"): output}
    outputs |= {("topics", name): topic for name, topic in named.items()} if isinstance(named, dict) else {}
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


def _lines(problems: Problems) -> list[str]:
    return [f"{dotted(where)}: {what}" if where else what for where, what in problems]


def _has(document: Any, where: Where) -> bool:
    for step in where:
        if not isinstance(document, dict | list) or (isinstance(document, dict) and step not in document):
            return False
        document = document[step]  # type: ignore[index]  # a list's steps are numbers
    return True


def _at(document: Any, where: Where) -> Any:
    """The value at a place; None if there is none."""
    for step in where:
        if not isinstance(document, dict) or step not in document:
            return None
        document = document[step]
    return document


def _shown(raw: Mapping[str, Any], where: Where) -> str:
    """A value as it is in the file, quoted and truncated; secrets masked."""
    value = masked({str(where[-1]): _at(raw, where)})[str(where[-1])]
    text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def _kind_of(value: Any) -> str:
    names = {str: "a text", dict: "a mapping", list: "a list", bool: "true or false", type(None): "empty"}
    return names.get(type(value), "a number")


def _model_at(model: type[BaseModel] | None, where: Where) -> type[BaseModel] | None:
    """The model whose keys are allowed at a place; None if any key is allowed (properties)."""
    for step in where:
        field = None if model is None else model.model_fields.get(str(step))
        model = None if field is None else next(_models(field.annotation), None)
    return model


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _field_descriptions(model: type[BaseModel] | None) -> dict[str, str]:
    return {} if model is None else {name: field.description or "" for name, field in model.model_fields.items()}
