"""What a receipt says of a batch: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teacup.kafka.delivery.receipt import (
    RENEW_AFTER_MS,
    Batch,
    Receipt,
    WrittenSoFar,
    bare_claims,
    check_start,
    digest_of,
    needed,
    written_so_far,
)
from teacup.kafka.errors import BatchDiffers, OutputTaken, ReceiptRefused


def receipt(number=5, generation="g", rows=7, done=True, digest="d"):
    return Receipt(generation, number, digest, rows, done, {"out": rows}, at_ms=1_000)


def batch(number=5, generation="g", digest="d"):
    return Batch(generation, number, digest)


CLAIM = Receipt.claim("g", 1_000)


@given(
    st.builds(
        Receipt,
        st.text(max_size=8),
        st.integers(0, 2**40),
        st.text(max_size=8),
        st.integers(0, 2**40),
        st.booleans(),
        st.dictionaries(st.text(max_size=8), st.integers(0, 2**40), max_size=3),
        st.integers(0, 2**50),
        st.text(max_size=8),
    )
)
def test_a_receipt_survives_its_text(receipt):
    """It is stored as text, in the offset metadata."""
    assert Receipt.from_text(receipt.to_text()) == receipt


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"format":1}', '{"format":2,"number":1}'])
def test_what_is_not_a_receipt_is_refused(text):
    """Another program commits to the group: then nothing is known."""
    with pytest.raises(ReceiptRefused, match="not a receipt"):
        Receipt.from_text(text)


def test_a_bucket_that_begins_later_than_the_others_has_no_receipt_before_its_first_batch():
    """A partition that was added while the join runs; afterwards a missing receipt is a lost one."""
    first, later = Batch("g", 7, "d", first=7), Batch("g", 8, "d", first=7)

    assert written_so_far(None, first, "bucket") == WrittenSoFar()
    assert needed(None, 0)
    with pytest.raises(ReceiptRefused, match="batch 8"):
        written_so_far(None, later, "bucket")
    with pytest.raises(ReceiptRefused, match="batch 7"):
        written_so_far(None, batch(7), "bucket")


def test_a_checkpoint_that_goes_on_after_another_may_claim_its_output_if_nothing_came_later():
    """Nor any other generation's; a batch that is in only in part would be lost."""
    after = batch(5, generation="old")
    for ended in (receipt(5, "old"), receipt(3, "old"), receipt(0, "old"), None):
        check_start(ended, "new", None, "bucket", goes_on_after=after)

    with pytest.raises(OutputTaken, match=r"batch 6 .*`teacup move`"):
        check_start(receipt(6, "old"), "new", None, "bucket", goes_on_after=after)
    with pytest.raises(ReceiptRefused, match="only 7 rows"):
        check_start(receipt(5, "old", done=False), "new", None, "bucket", goes_on_after=after)
    with pytest.raises(OutputTaken, match="generation third"):
        check_start(receipt(5, "third"), "new", None, "bucket", goes_on_after=after)


def test_a_rewound_checkpoint_may_claim_its_output_if_the_receipt_is_the_one_that_was_taken_into_account():
    """Also that of a batch which is in only in part: its rows were looked up. Nobody may have written since."""
    known = receipt(5, "old", done=False)
    for now in (known, None):
        check_start(now, "new", None, "bucket", accounted=known)

    for since in (receipt(5, "old"), receipt(6, "old")):
        with pytest.raises(OutputTaken, match="repeat `teacup rewind`"):
            check_start(since, "new", None, "bucket", accounted=known)
    with pytest.raises(OutputTaken, match="generation third"):
        check_start(receipt(5, "third"), "new", None, "bucket", accounted=known)


def test_of_the_first_batch_without_a_receipt_nothing_is_in():
    """Nobody has claimed the output."""
    assert written_so_far(None, batch(1), "bucket") == written_so_far(CLAIM, batch(1), "bucket") == WrittenSoFar()


def test_of_a_later_batch_without_a_receipt_nothing_is_known():
    """It existed after the first batch: somebody, or Kafka's retention, has deleted it."""
    with pytest.raises(ReceiptRefused, match=r"no receipt.*offsets\.retention\.minutes"):
        written_so_far(None, batch(2), "bucket 0 of job 'j'")


@pytest.mark.parametrize("number", [1, 5])
@pytest.mark.parametrize("theirs", [Receipt.claim("other", 1_000), receipt(generation="other")])
def test_what_another_checkpoint_has_claimed_is_its_own(number, theirs):
    """Even the first batch: it may be a late attempt of a checkpoint that was replaced."""
    with pytest.raises(OutputTaken, match="taken over"):
        written_so_far(theirs, batch(number), "bucket")


def test_an_earlier_batch_says_nothing_of_this_one():
    """Batches without rows leave no receipt, so the receipt may be several batches behind."""
    assert written_so_far(receipt(number=3, digest="another"), batch(5), "bucket").rows == 0


def test_the_rows_of_this_batch_that_are_in_the_output_are_reported():
    """In parts, and done."""
    part = written_so_far(receipt(rows=7, done=False), batch(5), "bucket")
    whole = written_so_far(receipt(rows=9, done=True), batch(5), "bucket")

    assert (part.rows, part.done, part.sent) == (7, False, {"out": 7})
    assert (whole.rows, whole.done) == (9, True)


@pytest.mark.parametrize(("done", "how_much"), [(True, "all"), (False, "the first 7")])
def test_another_batch_of_the_same_number_is_refused(done, how_much):
    """It was planned again after its first plan was lost: its rows differ, and all or some of the first are in."""
    with pytest.raises(BatchDiffers, match=rf"{how_much} rows .*batch 5 .*digest d, now new.*--take-over"):
        written_so_far(receipt(done=done), batch(5, digest="new"), "bucket")


def test_a_batch_that_gives_other_rows_when_it_runs_again_is_refused():
    """Rows are skipped by their number: with other rows there, some would be lost or written twice."""
    part = written_so_far(Receipt("g", 5, "d", 7, False, {"out": 7}, 1_000, "left 0:6"), batch(5), "bucket")

    part.check_reached("left 0:6", "bucket")

    with pytest.raises(ReceiptRefused, match=r"7 rows .*left 0:6.*left 0:8"):
        part.check_reached("left 0:8", "bucket")


def test_a_checkpoint_that_has_gone_back_is_refused():
    """Its batches are in, and would be written again."""
    with pytest.raises(ReceiptRefused, match="put back, or copied"):
        written_so_far(receipt(number=6), batch(5), "bucket")


def test_a_digest_is_of_values_and_not_of_their_order():
    """The executor reads the driver's plan from JSON."""
    assert digest_of({"a": 1, "b": [1, {"c": None}]}) == digest_of({"b": [1, {"c": None}], "a": 1})
    assert digest_of({"a": 1}) != digest_of({"a": 2})


@pytest.mark.parametrize("found", [None, CLAIM])
def test_a_new_checkpoint_begins_where_nobody_has_written(found):
    """Or where an earlier start, which planned nothing, has claimed the output."""
    check_start(found, "g", None, "bucket")


def test_a_new_checkpoint_replaces_another_one_only_if_asked_to():
    """A second start of the same job file, on another machine: the first may be running."""
    other = receipt(generation="other")

    with pytest.raises(OutputTaken, match=r"generation other.*may still run.*--take-over"):
        check_start(other, "g", None, "bucket")
    check_start(other, "g", None, "bucket", take_over=True)


@pytest.mark.parametrize("take_over", [False, True])
def test_a_checkpoint_that_has_lost_all_its_plans_is_refused(take_over):
    """A checkpoint cannot take over from itself."""
    with pytest.raises(ReceiptRefused, match="its offset log is gone"):
        check_start(receipt(number=1), "g", None, "bucket", take_over=take_over)


def test_a_checkpoint_continues_by_the_rules_of_its_newest_batch():
    """Before it starts as well as when it delivers; take-over is for new checkpoints."""
    check_start(receipt(), "g", batch(5), "bucket")
    check_start(receipt(number=3), "g", batch(5), "bucket")

    with pytest.raises(BatchDiffers):
        check_start(receipt(), "g", batch(5, digest="new"), "bucket")
    with pytest.raises(ReceiptRefused, match="put back, or copied"):
        check_start(receipt(number=6), "g", batch(5), "bucket")
    with pytest.raises(OutputTaken):
        check_start(receipt(generation="other"), "g", batch(5), "bucket", take_over=True)


def test_a_batch_without_rows_leaves_a_receipt_first_and_once_a_day():
    """The first one, which would otherwise look like a lost one; then before Kafka deletes it."""
    assert needed(None, 1_000)
    assert not needed(receipt(), 1_000 + RENEW_AFTER_MS)
    assert needed(receipt(), 1_001 + RENEW_AFTER_MS)


def test_a_claim_in_place_of_a_receipt_of_rows_keeps_others_out_though_its_start_has_ended():
    """As after a rewind, a move, or a take-over: the output has rows, and another checkpoint would repeat them."""
    written = Receipt("first", 3, "digest", 5, done=True)
    bare = Receipt.claim("second", 1, "us")
    over = Receipt.claim("third", 2, "us", replaces=Receipt.claim("second", 1, "us", replaces=written))

    def found(*receipts):
        return bare_claims(receipts, lambda claimed_by: True)

    assert found(bare, None) == {"second"}
    assert found(Receipt.claim("third", 2, "us", replaces=bare)) == {"third"}
    assert found(over, None) == found(bare, written) == found(Receipt.from_text(over.to_text()), bare) == frozenset()
