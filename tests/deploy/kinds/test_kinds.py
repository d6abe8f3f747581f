"""The registry of kinds of jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from pydantic import Field
from typer.testing import CliRunner

from deploy.check.checks import Checks
from deploy.check.uses import Named
from deploy.cli.app import app
from deploy.jobfile.job import CommonJob
from deploy.jobfile.job_keys import JobKeys
from deploy.jobfile.kinds import KINDS, Consent, Registered
from deploy.jobfile.load import load_job
from deploy.kinds.job_kind import JobKind, kind_of

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"


@dataclass(frozen=True, kw_only=True)
class CountJob(CommonJob):
    """Counts the records of a topic."""

    name: str
    kafka: Mapping[str, str]
    topic: str

    @property
    def job_name(self) -> str:
        return self.name


class CountKeys(JobKeys):
    """The keys of its job file."""

    kind: Literal["count"] = Field(description="what the job is")
    topic: str = Field(description="the topic whose records are counted")

    def to_job(self) -> CountJob:
        return CountJob(**self.common(), name=self.name, kafka=self.kafka, topic=self.topic)


class CountJobKind(JobKind):
    """What the runner and `check --connect` need."""

    def __init__(self, job: CountJob) -> None:
        super().__init__(job, job.kafka)
        self._job = job

    def opening(self) -> str:
        return f"{self.name}: counts {self._job.topic}"

    def topics(self) -> list[Named]:
        return [Named("topic", self._job.topic, self.kafka)]

    def checks(self) -> Checks:
        return Checks(content=lambda: "is new")

    def stream(self, spark: Any, stopping: Any) -> Any: ...

    def report(self, summaries: Sequence[Any], seconds: float, at_ms: int) -> Any: ...

    def positions(self, end: Mapping[str, Any]) -> dict[tuple[str, int], int]:
        return {}


def test_a_new_kind_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Job files, commands and `check --connect` know it; here no broker answers."""
    monkeypatch.setattr("deploy.check.connect.BROKERS_ANSWER_WITHIN_S", 0.5)
    monkeypatch.setitem(KINDS, "count", Registered(f"{__name__}:CountKeys", f"{__name__}:CountJobKind"))  # type: ignore[misc]
    path, state = tmp_path / "job.yaml", str(tmp_path / "state")
    kafka = {"bootstrap.servers": "127.0.0.1:9"}
    path.write_text(yaml.safe_dump({"name": "c", "kind": "count", "kafka": kafka, "topic": "t", "checkpoint": state}))

    kind = kind_of(load_job(path, {}), Consent(take_over=True))
    schema = CliRunner().invoke(app, ["schema", "--kind", "count", "--table"])
    checked = CliRunner().invoke(app, ["check", str(path), "--connect"])

    assert (kind.opening(), kind.consent.take_over) == ("c: counts t", True)
    assert "| `topic` | required | the topic whose records are counted |" in schema.stdout
    assert "error    kafka" in checked.stdout
    assert f"checkpoint    {state} is new" in checked.stdout


@pytest.mark.parametrize(
    ("example", "read", "written"),
    [
        ("window-join", ["left.topic", "right.topic"], ["output", "dead_letter", "late", "unmatched", "unjoined"]),
        ("lookup", ["left.topic"], ["output", "dead_letter", "unmatched"]),
        ("dedup", ["source.topic"], ["output"]),
        ("feeder", ["right.topic"], ["dead_letter"]),
    ],
)
def test_a_kind_names_its_topics(example: str, read: list[str], written: list[str]) -> None:
    """With their keys; the feeder reads the right topic of a lookup join."""
    job = load_job(EXAMPLES / f"{example}.yaml", {})

    topics = kind_of(job).topics()

    assert [topic.key for topic in topics if not topic.written] == read
    outputs = [topic.key.removeprefix("topics.").removesuffix(".topic") for topic in topics if topic.written]
    assert outputs == written


def test_a_kind_that_is_not_registered_is_refused() -> None:
    """No other kind takes its place."""
    job = CountJob(kind="count", checkpoint="c", name="n", kafka={}, topic="t")

    with pytest.raises(ValueError, match=r"'count' .* window-join, lookup-join, dedup"):
        kind_of(job)
