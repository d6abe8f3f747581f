"""A job file (YAML) becomes a job: validated completely before anything connects, all errors reported at once.

    Document (`teacup.base.config.document`) -> the keys of its kind (`kinds.py`) -> a job (`job.py`)

Each librdkafka property is tried on a producer of its own, which has no broker and so opens no connection.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from deploy.jobfile.job import CommonJob
from deploy.jobfile.job_keys import JobKeys
from deploy.jobfile.kinds import KINDS
from deploy.jobfile.service_files import SERVICES, service_of
from deploy.jobfile.shared_process import Files, Running, WrongFile, all_valid, decided, jobs_of
from teacup.base.config.document import Document
from teacup.base.config.keys import Problems, Where, meanings, most_similar, shown, texts
from teacup.base.errors import Invalid, SettingsInvalid
from teacup.kafka import client
from teacup.kafka.errors import ConfigError
from teacup.kafka.rotation import TOKEN

_silent = logging.getLogger("teacup.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

_MEANINGS = {
    "No such configuration property": "librdkafka knows no such property; its names are in CONFIGURATION.md there",
    "Invalid value": "librdkafka does not take this value",
    "outside allowed range": "librdkafka takes {range}",
}


def load_job(path: Path, environ: Mapping[str, str] = os.environ, assignments: Sequence[str] = ()) -> CommonJob:
    """Returns the job in a file. Raises `SettingsInvalid` with every problem. Connects to nothing.

    assignments   `key=value` from the command line, which override the file
    """
    document = Document.read(path, environ, assignments, _model_of)
    model = _model_of(document.raw)
    if model is None:
        raise document.refused([_no_kind(document.raw), *document.faults])
    also = [*_topic_clashes(document.values), *_kafka_problems(document.values)]
    keys = document.as_model(model, also=also)
    try:
        return keys.to_job()
    except Invalid as error:
        raise document.refused([((), str(error))]) from error


def job_files(places: Sequence[Path]) -> list[Path]:
    """Returns the job files at these places: files, and those in folders whose names do not begin with `_`.

    Raises `SettingsInvalid` for a folder that has none.
    """
    chosen: list[Path] = []
    for place in places:
        if not place.is_dir():
            chosen.append(place)
            continue
        inside = [file for file in sorted(place.iterdir()) if file.suffix in (".yaml", ".yml")]
        files = [file for file in inside if not file.name.startswith(("_", "."))]
        if not files:
            raise SettingsInvalid(place, ["has no job files (*.yaml, not beginning with `_`)"])
        chosen += files
    return chosen


def load_files(
    places: Sequence[Path], assignments: Sequence[str] = (), running: Running | None = None, *, strict: bool
) -> Files:
    """Returns the job files that share a process, each with its job, or with why it cannot run there.

    running  what the process already runs; None: it starts
    strict   whether all must be valid

    Raises `SettingsInvalid` with every problem of every file if they must but are not, or if a starting process would
    have nothing to run.
    """
    alone = {file: read_file(file, assignments) for file in job_files(places)}
    files = decided(alone, running or Running())
    return all_valid(files) if strict or not (running or jobs_of(files)) else files


def read_file(file: Path, assignments: Sequence[str] = ()) -> CommonJob | WrongFile:
    """Returns the job in a file, or what is wrong with it."""
    try:
        return load_job(file, assignments=assignments)
    except SettingsInvalid as error:
        return WrongFile(_name_in(file, assignments) or file.stem, error.problems)


def _name_in(file: Path, assignments: Sequence[str]) -> str:
    """Returns the name in a job file that has errors; empty if it cannot be read."""
    try:
        name = Document.read(file, assignments=assignments, model_of=_model_of).values.get("name")
    except SettingsInvalid:
        return ""
    return name if isinstance(name, str) else ""


def _model_of(document: Mapping[str, Any]) -> type[JobKeys] | None:
    """Returns the keys that a job of this kind may have; None if there is no such kind."""
    kind = document.get("kind")
    return KINDS[kind].keys if isinstance(kind, str) and kind in KINDS else None


def _no_kind(document: Mapping[str, Any]) -> tuple[Where, str]:
    """Returns what is wrong with a file that is not of any kind of job."""
    kinds = " or ".join(KINDS)
    if "kind" in document:
        return ("kind",), f"{shown(document, ('kind',))} is not allowed; give {kinds}"
    if (service := service_of(document)) is not None:
        return ("kind",), f"is missing; this is a file of {service.name}, which `{service.command}` takes"
    keys = {key for kind in KINDS.values() for key in meanings(kind.keys)}
    for key in document:
        close = None if key in keys else most_similar(str(key), ["kind", *SERVICES])
        if close is not None:
            return (key,), f"unknown key; did you mean {close}?"
    return ("kind",), f"is missing; give {kinds}"


def _topic_clashes(document: Mapping[str, Any]) -> Problems:
    """Finds topics of two roles: an output as input feeds the join its own rows, side outputs mix with the rows."""
    inputs = {f"{side}.topic": _keys(document, side).get("topic") for side in ("left", "right", "source")}
    output = _keys(document, "output").get("topic")
    outputs: dict[Where, Any] = {("output", "topic"): output}
    outputs |= {("topics", name): topic for name, topic in _keys(document, "topics").items()}
    problems: Problems = []
    left = inputs["left.topic"]
    if left is not None and left == inputs["right.topic"] and document.get("kind") == "lookup-join":
        problems.append((("right", "topic"), "is left.topic as well; a lookup join needs two topics"))
    for where, topic in outputs.items():
        for key, taken in inputs.items():
            if topic is not None and topic == taken:
                problems.append((where, f"is {key} as well; rows must not come back as records, give another topic"))
        if where != ("output", "topic") and topic is not None and topic == output:
            problems.append((where, "is output.topic as well; give a topic that holds no rows"))
    return problems


def _kafka_problems(document: Mapping[str, Any]) -> Problems:
    """Returns the properties that librdkafka does not accept, and why."""
    given: dict[Where, Any] = {
        ("kafka",): _keys(document, "kafka"),
        ("output", "kafka"): _keys(document, "output", "kafka"),
    }
    return [((*where, key), what) for where, kafka in given.items() for key, what in property_problems(texts(kafka))]


def property_problems(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each property that we refuse, or that librdkafka does not accept by itself, and why.

    Faults that involve several properties (a SASL mechanism without its security protocol) are found when the job
    connects.
    """
    for key, value in given.items():
        if key in ("bootstrap.servers", TOKEN):
            continue
        try:
            client.validate({"bootstrap.servers": "one:9092", key: value})
        except ConfigError as error:
            yield key, str(error).removeprefix(f"{key}: {value!r} is refused: ")
            continue
        if problem := _refusal(key, value):
            yield key, problem


def _refusal(key: str, value: str) -> str | None:
    try:
        Producer({key: value}, logger=_silent)
    except KafkaException as error:
        message = error.args[0].str()
        limits = re.search(r"allowed range (\S+)", message)
        for sign, problem in _MEANINGS.items():
            if sign in message:
                return problem.format(range=limits[1] if limits else "a smaller range")
    return None


def _keys(document: Mapping[str, Any], *where: str) -> Mapping[str, Any]:
    """Returns the mapping at a place; an empty one if there is none."""
    for step in where:
        inner = document.get(step)
        document = inner if isinstance(inner, dict) else {}
    return document
