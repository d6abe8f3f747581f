"""What audit and explain say of a rewound job is what its output has."""

from __future__ import annotations

from typing import Any

from deploy.inspection.audit.run import audit
from deploy.inspection.explain.answers import Explainer
from deploy.inspection.explain.as_json import for_machines
from tests.crash.traffic import START_MS
from tests.deploy.jobs.rewind.histories import Position, Rewound, pairs


def check_audit(job: Rewound) -> None:
    """It finds the rows that were written again, and nothing else."""
    found = audit(job.job(), START_MS, START_MS + 3_600_000, folder=job.folder)
    print(job.said, job.policy, job.once, *found.lines(), sep="\n")
    assert not found.faults, (job.said, *found.lines())


def check_explained(job: Rewound) -> None:
    """What it says of records is what the output has of them."""
    found = pairs(job.kafka, job.topics["out"])
    some = job.numbers.sample(sorted(left for left, passes in job.passes.items() if passes), 5)
    for left, answer in _explained(job, some).items():
        rights = {right for position, right in found if position == left}
        print(left, rights, answer)
        assert answer["outcome"] == ("unmatched" if rights == {None} else "matched"), (left, rights, answer)


def _explained(job: Rewound, positions: list[Position]) -> dict[Position, dict[str, Any]]:
    with Explainer.opened(job.job(), lambda _: None) as explainer:
        return {
            text: for_machines(explainer.position("left", tuple(map(int, text.split(":")))))  # type: ignore[arg-type]
            for text in positions
        }
