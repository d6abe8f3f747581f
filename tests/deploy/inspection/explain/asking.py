"""Answers of `teacup explain`, as tests look at them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from deploy.inspection.explain.answers import Explainer
from deploy.inspection.explain.as_json import for_machines
from deploy.jobfile.job import JoinJob
from deploy.jobfile.load import load_job


def answers(content: dict[str, Any], lefts: Iterable[str], rights: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    """The answers about records of each side, by position, all by one explainer."""
    job = as_job(content)
    with Explainer.opened(job, lambda _: None) as explainer:
        return tuple(
            {text: for_machines(explainer.position(side, position(text))) for text in positions}
            for side, positions in (("left", lefts), ("right", rights))
        )


def as_job(content: dict[str, Any]) -> JoinJob:
    path = Path(content["checkpoint"]).parent / "explained.yaml"
    path.write_text(yaml.safe_dump(content))
    job = load_job(path)
    assert isinstance(job, JoinJob)
    return job


def position(text: str) -> tuple[int, int]:
    partition, offset = map(int, text.split(":"))
    return partition, offset


def short(answer: dict[str, Any]) -> tuple[Any, ...]:
    """Outcome, reason, and of each right record of the answer its reason."""
    rulings = {"{}:{}".format(*found["position"]): found["match_reason"] for found in answer.get("candidates", ())}
    return answer["outcome"], answer["reason"], rulings
