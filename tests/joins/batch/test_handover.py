"""What a new checkpoint knows of the one that it goes on after: pure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joins.batch.handover import Handover, Rewound, as_it_was
from joins.errors import SpecChanged
from joins.plan.readable import list_ends
from joins.plan.start.positions import begin
from joins.spec import JoinPath, Side
from joins.testing.log import Clock, SimulatedLog
from joins.testing.strategies import specs
from tests.support.making import join_spec, topic


def begun(spec):
    clock = Clock(10_000)
    left, right = SimulatedLog(topic("left", []), clock), SimulatedLog(topic("right", []), clock)
    return begin(spec, list_ends(left, right, clock.now_ms), left, right)


@given(specs(), specs(), st.sampled_from([(None, None), (JoinPath.SHUFFLED, 3)]))
def test_the_join_as_it_was_has_the_identity_and_the_path_of_its_checkpoint(was, becomes, path):
    """Whatever it becomes: what was read is found again only by the join that read it."""
    was = replace(was, path=path[0], buckets=path[1])

    again = as_it_was(becomes, begun(was))

    assert again.identity() == was.identity()
    assert (again.path is JoinPath.SHUFFLED) == (was.path is JoinPath.SHUFFLED)


def moved(**changes):
    handover = Handover(
        checkpoint="/old",
        generation="g",
        number=7,
        name="job",
        output="out",
        topic="left",
        topic_id="t",
        left={0: 5, 1: 6},
    )
    return replace(handover, **changes)


def test_it_survives_its_json():
    """It is a file in the new checkpoint."""
    rewound = Rewound(
        to_ms=5,
        after=0,
        before=None,
        completed=False,
        receipts={0: "{}", 1: "{}"},
        kept={0: (5, "bits")},
    )
    all_again = replace(rewound, to_ms=None, before=2, kept=None)

    kept = moved(kept={0: (5, "bits"), 1: (6, "bits")})
    for handover in (moved(), moved(earlier=("e", "f")), moved(rewound=rewound), moved(rewound=all_again), kept):
        assert Handover.from_json(json.loads(json.dumps(handover.to_json()))) == handover


def test_partitions_that_the_other_checkpoint_did_not_have_are_read_from_their_first_record():
    """Not from what retention has left of them: that would be a loss that nobody reports."""
    assert moved().apply(join_spec(name="job"), "out", 4).start == {0: 5, 1: 6, 2: 0, 3: 0}


@pytest.mark.parametrize(
    ("job", "output", "key"),
    [
        (join_spec(name="other"), "out", "name"),
        (join_spec(name="job"), "other", r"output\.topic"),
        (join_spec(name="job", left=Side(topic="other")), "out", r"left\.topic"),
    ],
)
def test_a_job_of_another_name_or_output_or_left_topic_is_refused(job, output, key):
    """The receipts that keep the old job from going on are those of its name and output."""
    with pytest.raises(SpecChanged, match=f"^{key}: "):
        moved().apply(job, output, 2)
