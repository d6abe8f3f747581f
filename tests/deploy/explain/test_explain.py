"""`teacup explain` on a real broker, after real runs of a job: each outcome that a record can have is explained."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.explain.answers import Explainer
from deploy.explain.as_json import for_machines
from deploy.explain.command import Question, explain_of
from deploy.job import JoinJob
from deploy.load import load_job
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from tests.deploy.jobs.conftest import here, window_job
from tests.support.sparkjoin import Put, produce

__all__ = ["here", "window_job"]


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """`ask(content, left="0:1")`: the answer as JSON; with `text=True` its lines."""

    def asked(content: dict[str, Any], *, text: bool = False, **question: Any) -> Any:
        path = tmp_path / "asked.yaml"
        path.write_text(yaml.safe_dump(content))
        capsys.readouterr()
        code = explain_of(path, Question(**question), as_json=not text)
        printed = capsys.readouterr()
        assert code == ExitCode.DONE, printed.err
        return printed.out.splitlines() if text else json.loads(printed.out)

    return asked


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
    """Outcome, reason, and of each right record of the answer its ruling."""
    rulings = {"{}:{}".format(*found["position"]): found["ruling"] for found in answer.get("candidates", ())}
    return answer["outcome"], answer["reason"], rulings


T = wall_ms() // 1_000 * 1_000 - 3_600_000


def at(seconds: float) -> int:
    return T + int(seconds * 1_000)


FIRST_LEFT = [
    Put(0, b"k0", at(10), b"{}"),  # 0: matched, nearest of two
    Put(0, b"k1", at(11), b"{}"),  # 1: its right record comes after the interval
    Put(0, b"k2", at(12), b"{}"),  # 2: before it
    Put(0, b"k3", at(13), b"{}"),  # 3: the key is written differently
    Put(0, None, at(14), b"{}"),  # 4: no key
    Put(0, b"k5", at(15), b"no json"),  # 5: dead letter
    Put(0, b"k6", at(16), b"{}"),  # 6: its right record will come late
    Put(0, b"k7", at(17), b"{}"),  # 7: its right record is a dead letter
    Put(0, b"k8", at(18), b"{}"),  # 8: its right record is in another partition
    Put(1, b"s0", at(10), b"{}"),  # 1:0: right stalls
]
FIRST_RIGHT = [
    Put(0, b"k2", at(8), b"{}"),  # 0: two seconds before k2's interval
    Put(0, b"k0", at(8.5), b"{}"),  # 1
    Put(0, b"k0", at(9), b"{}"),  # 2: wins
    Put(0, b"K3\n", at(12.5), b"{}"),  # 3
    Put(0, b"k1", at(13.2), b"{}"),  # 4: 1.2 s after the interval
    Put(0, b"k7", at(16.5), b"no json"),  # 5: dead letter
    Put(0, b"end", at(30), b"{}"),  # 6
]
SECOND_LEFT = [
    Put(0, b"k9", at(100), b"{}"),  # 9: matched
    Put(0, b"k0", at(10.1), b"{}"),  # 10: late, and what it matches has expired
]
SECOND_RIGHT = [
    Put(0, b"k6", at(15), b"{}"),  # 7: late for k6
    Put(0, b"k9", at(99), b"{}"),  # 8: joined
    Put(0, b"end", at(200), b"{}"),  # 9: stays in the window
    Put(1, b"k8", at(17), b"{}"),  # 1:0: in the wrong partition
]

LEFTS = {
    "0:0": ("matched", None, {"0:1": "outdone", "0:2": "won"}),
    "0:1": ("unmatched", "no_candidate", {"0:4": "after_interval"}),
    "0:2": ("unmatched", "no_candidate", {"0:0": "before_interval"}),
    "0:3": ("unmatched", "no_candidate", {"0:3": "other_key"}),
    "0:4": ("unmatched", "null_key", {}),
    "0:5": ("dead_letter", "invalid_json", {}),
    "0:6": ("unmatched", "no_candidate", {"0:7": "read_later"}),
    "0:7": ("unmatched", "no_candidate", {"0:5": "dead_letter"}),
    "0:8": ("unmatched", "no_candidate", {"1:0": "other_bucket"}),
    "0:9": ("matched", None, {"0:8": "won"}),
    "0:10": ("unmatched", "no_candidate", {"0:1": "expired", "0:2": "expired"}),
    "0:11": ("held", None, {}),
    "1:0": ("unmatched", "right_stalled", {}),
}
RIGHTS = {
    "0:2": ("joined", None),
    "0:5": ("dead_letter", "invalid_json"),
    "0:4": ("unjoined", "expired"),
    "0:7": ("unjoined", "expired"),
    "0:9": ("in_window", None),
    "0:10": ("unread", None),
}


def test_each_outcome_is_explained(kafka, admin, window_job, topic_factory, here, ask, tmp_path):
    """One job in two runs, in which everything happens; its topics, output and checkpoint are all that is asked."""
    content = window_job(
        2,
        join={"before": "2s", "after": "1s", "path": "direct"},
        idle="hold",
        outliers=0,
        max_wait="1s",
        topics={name: topic_factory(2, prefix=name) for name in ("dead_letter", "late", "unmatched", "unjoined")},
    )
    for side in ("left", "right"):
        content[side]["format"] = "json"
    left, right, out = (content[name]["topic"] for name in ("left", "right", "output"))
    produce(kafka, left, FIRST_LEFT)
    produce(kafka, right, FIRST_RIGHT)
    assert here.run(content).code == ExitCode.DONE
    produce(kafka, left, SECOND_LEFT)
    produce(kafka, right, SECOND_RIGHT)
    assert here.run(content).code == ExitCode.DONE
    produce(kafka, left, [Put(0, b"k11", wall_ms() + 40_000, b"{}")])
    produce(kafka, right, [Put(0, b"k11", wall_ms() + 39_000, b"{}")])

    lefts, rights = answers(content, LEFTS, RIGHTS)

    assert {position: short(answer) for position, answer in lefts.items()} == LEFTS | {
        "0:11": ("held", None, {"0:10": "unread"})
    }
    assert {position: (answer["outcome"], answer["reason"]) for position, answer in rights.items()} == RIGHTS
    assert lefts["0:1"]["candidates"][0]["by_ms"] == 1_200
    assert lefts["0:6"]["candidates"][0]["late_by_ms"] == 15_000
    assert lefts["0:10"]["late"] is True
    assert lefts["0:11"]["waits_for"]["cause"] == "unread"
    assert {answer["rows"][0]["topic"] for answer in lefts.values() if answer["rows"]} == {out}
    assert all(answer["receipt"]["done"] for answer in lefts.values())
    assert rights["0:7"]["copies"][0]["outcome"] == "late"
    assert ask(content, text=True, left="0:1")[-1].endswith(
        "`join.after: 2s 200ms` would match it, and every row would wait that much longer"
    )
