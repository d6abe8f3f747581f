"""What a receipt says of a batch: pure."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaio.errors import ReceiptRefused
from kafkaio.receipt import RENEW_AFTER_MS, Receipt, needed, standing


def receipt(number=5, generation="g", rows=7, done=True):
    return Receipt(generation, number, rows, done, {"out": rows}, at_ms=1_000)


@given(
    st.builds(
        Receipt,
        st.text(max_size=8),
        st.integers(1, 2**40),
        st.integers(0, 2**40),
        st.booleans(),
        st.dictionaries(st.text(max_size=8), st.integers(0, 2**40), max_size=3),
        st.integers(0, 2**50),
        st.text(max_size=8),
    )
)
def test_a_receipt_survives_its_text(one):
    """As offset metadata it is a text."""
    assert Receipt.from_text(one.to_text()) == one


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"format":2}', '{"format":1,"number":1}'])
def test_what_is_no_receipt_is_refused(text):
    """Another program commits to the group: nothing is known then."""
    with pytest.raises(ReceiptRefused, match="no receipt that this version can read"):
        Receipt.from_text(text)


def test_of_the_first_batch_without_a_receipt_nothing_is_in():
    """A new checkpoint, or the first batch again."""
    assert standing(None, "g", 1, "bucket") == standing(receipt(generation="old"), "g", 1, "bucket")
    assert standing(None, "g", 1, "bucket").rows == 0


def test_of_a_later_batch_without_a_receipt_nothing_is_known():
    """It was there after the first batch: somebody, or Kafka's retention, has deleted it."""
    with pytest.raises(ReceiptRefused, match=r"no receipt.*offsets\.retention\.minutes"):
        standing(None, "g", 2, "bucket 0 of job 'j'")


def test_a_receipt_of_another_checkpoint_hides_our_own():
    """A job of the same name ran on another checkpoint in between."""
    with pytest.raises(ReceiptRefused, match="another checkpoint"):
        standing(receipt(generation="other"), "g", 5, "bucket")


def test_an_earlier_batch_says_nothing_of_this_one():
    """Batches without rows leave no receipt, so that it may be several batches behind."""
    assert standing(receipt(number=3), "g", 5, "bucket").rows == 0


def test_the_rows_of_this_batch_that_are_in_are_told():
    """In parts, and done."""
    part = standing(receipt(rows=7, done=False), "g", 5, "bucket")
    whole = standing(receipt(rows=9, done=True), "g", 5, "bucket")

    assert (part.rows, part.done, part.sent) == (7, False, {"out": 7})
    assert (whole.rows, whole.done) == (9, True)


def test_a_batch_that_gives_other_rows_when_it_runs_again_is_refused():
    """Rows are skipped by their number: another one there means that some would be lost, or written twice."""
    part = standing(Receipt("g", 5, 7, False, {"out": 7}, 1_000, "left 0:6"), "g", 5, "bucket")

    part.check_reached("left 0:6", "bucket")

    with pytest.raises(ReceiptRefused, match=r"7 rows of this batch are in.*left 0:6; now it is about left 0:8"):
        part.check_reached("left 0:8", "bucket")


def test_a_checkpoint_that_has_gone_back_is_refused():
    """Its batches are in, and would be written again."""
    with pytest.raises(ReceiptRefused, match="put back, or copied"):
        standing(receipt(number=6), "g", 5, "bucket")


def test_a_batch_without_rows_leaves_a_receipt_first_and_once_a_day():
    """The first one, or it could not be told from a lost one; then before Kafka forgets it."""
    assert needed(None, "g", 1_000)
    assert needed(receipt(generation="old"), "g", 1_000)
    assert not needed(receipt(), "g", 1_000 + RENEW_AFTER_MS)
    assert needed(receipt(), "g", 1_001 + RENEW_AFTER_MS)
