"""Exactly once, whatever is lost, late, fenced or killed: the delivery itself, on a simulated cluster.

A history is one bucket and its jobs, each taking over from the one before. Hypothesis draws what happens next: a
request proceeds, gets lost, or arrives late; a process is killed, or left behind as a zombie; time passes; a driver
dies, perhaps losing its newest plan; a new checkpoint takes over. At every point a reader of committed records finds

    of each batch the first rows, in order, each once, as many as the receipt says; all of them if it was committed
    nothing of a batch whose plan was replaced by another one, beside that one
    nothing that an older checkpoint wrote after the newer one had claimed the output

and in the end every row of the newest job. The canaries each remove one safeguard, and the property must fail.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from teacup.kafka.delivery import claim, fencing, receipt
from teacup.kafka.write import writer
from tests.support.canary import searched
from tests.teacup.kafka.delivery.missingsafeguards import (
    digest_ignored,
    done_ignored,
    generation_ignored,
    nobody_is_fenced,
    receipt_read_before_fencing,
)
from tests.teacup.kafka.delivery.simulatedhistory import play


@pytest.fixture(scope="module", autouse=True)
def _no_real_time() -> Iterator[None]:
    """Requests take virtual time only: code that waits for real time would give up while a history is paused."""
    with pytest.MonkeyPatch.context() as patched:
        for module in (fencing, writer):
            patched.setattr(module, "within", lambda timeout_s, call, gives_up=None: call())
        patched.setattr(claim, "_PAUSE_S", 0.0)
        yield


@settings(suppress_health_check=list(HealthCheck))  # the smallest history is long
@given(st.data())
def test_each_row_is_in_the_output_once_whatever_happens(data):
    """See the module's docstring."""
    play(data)


@settings(suppress_health_check=list(HealthCheck))
@given(st.data())
def test_each_row_is_in_the_output_once_whoever_takes_over_for_whom(data):
    """Processes on the same checkpoint: each may be taken for lost, and comes back in the middle of anything."""
    play(data, standbys=True)


SEEDS = {
    receipt_read_before_fencing: 1,
    digest_ignored: 2,
    done_ignored: 399,
    generation_ignored: 381,
    nobody_is_fenced: 396,
}


WRONG_OUTPUT = (
    "not each row once|rows of two plans|rows without their receipt|the receipt differs|has written|is committed with"
)
"""What `History.check` says of rows that should not be there, or are missing: any may come first."""


@pytest.mark.canary
def test_without_terms_an_earlier_process_writes_after_a_later_one():
    """The fence alone does not keep it out: it tries again, with a new producer.

    Where the later one has written a batch that the earlier one only asks for, its receipt looks like a lost plan.
    """

    @searched(seed=1)
    @given(st.data())
    def found(data):
        play(data, standbys=True)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(receipt, "check_term", lambda found, term, who: None)
        patched.setattr(claim, "check_term", lambda found, term, who: None)
        with pytest.raises(AssertionError, match=r"an earlier process has written|nothing was lost, and bucket"):
            found()


@pytest.mark.canary
@pytest.mark.parametrize("without", SEEDS, ids=lambda rule: rule.__name__)
def test_without_a_safeguard_the_property_fails(without):
    """Each missing safeguard has a history that shows it."""

    @searched(seed=SEEDS[without])
    @given(st.data())
    def found(data):
        play(data)

    with pytest.MonkeyPatch.context() as patched:
        without(patched)
        with pytest.raises(AssertionError, match=WRONG_OUTPUT):
            found()
