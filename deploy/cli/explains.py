"""`teacup explain`: a question becomes an answer, in lines or JSON. Everything is only read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from deploy.check.access import naming_all_lacks
from deploy.check.uses import to_explain
from deploy.cli.commands import again, loaded_join, reported
from deploy.errors import code_of_inspection
from deploy.inspection.explain.answers import Explainer
from deploy.inspection.explain.as_json import Answer, for_machines, read_key
from deploy.inspection.explain.model import Gone, KeyAnswer
from deploy.inspection.explain.text import Words
from joins.explain import Position
from teacup.base.errors import ExitCode, Invalid
from teacup.base.now import wall_ms
from teacup.base.times import millis_of
from teacup.kafka.log.admin import BROKERS_WITHIN_S, wait_for_brokers


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked for, as typed: a key, or the position of a record."""

    key: str | None = None
    left: str | None = None
    right: str | None = None
    count: int = 3
    until: str | None = None
    most: int = 1_000_000

    def check(self) -> None:
        """Raises `Invalid` if it cannot be answered."""
        if sum(given is not None for given in (self.key, self.left, self.right)) != 1:
            raise Invalid("give one of --key, --left and --right")
        for option, text in (("--left", self.left), ("--right", self.right)):
            if text is not None and not re.fullmatch(r"\d+:\d+", text):
                raise Invalid(f"{option}: {text!r} is not allowed; give partition:offset, as in 3:1042")
        try:
            _ = self.until_ms
        except ValueError as error:
            raise Invalid(f"--until: {self.until!r} is not allowed: {error}") from error
        try:
            _ = self.key is None or read_key(self.key)
        except ValueError as error:
            raise Invalid(f"--key: {self.key!r} is not allowed: what follows `base64:` is not base64") from error

    @property
    def until_ms(self) -> int | None:
        """Returns the time of `--until`."""
        return None if self.until is None else millis_of(self.until)

    def answered(self, explainer: Explainer) -> Answer:
        """Returns the answer. Raises `KafkaIOError`, `JoinError`, `DeployError`."""
        if self.key is not None:
            return explainer.key(read_key(self.key), self.count, self.until_ms)
        side = "left" if self.left is not None else "right"
        return explainer.position(side, _position(self.left or self.right or ""))


def explain_of(
    job_file: Path, question: Question, assignments: Sequence[str] = (), *, as_json: bool = False
) -> ExitCode:
    """Answers a question about a job's records on standard output; errors are reported on standard error."""
    with reported():
        question.check()
    job = loaded_join(job_file, assignments, "only records of joins can be explained")
    with reported(code_of_inspection):
        wait_for_brokers(job.spec.kafka, give_up_after_s=BROKERS_WITHIN_S)
        with naming_all_lacks(lambda: to_explain(job)), Explainer.opened(job, _progress, question.most) as explainer:
            answer = question.answered(explainer)
            stored, command = explainer.how_far_stored(), again("explain", job_file, assignments)
            words = Words(explainer.spec, job.output.topic, command, wall_ms(), stored)
    if as_json:
        typer.echo(json.dumps(for_machines(answer)))
    else:
        for line in words.lines(answer):
            typer.echo(line)
    return ExitCode.NOT_FOUND if _is_empty(answer) else ExitCode.DONE


def _is_empty(answer: Answer) -> bool:
    """Returns whether there was nothing to explain."""
    match answer:
        case Gone():
            return not answer.rows.written
        case KeyAnswer():
            return not answer.lefts and not answer.rights
        case _:
            return False


def _position(text: str) -> Position:
    partition, _, offset = text.partition(":")
    return int(partition), int(offset)


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        typer.echo(line, err=True)
