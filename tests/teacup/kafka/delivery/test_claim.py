"""What a job does with its output before it begins, on a real broker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from teacup.kafka.delivery import claim
from teacup.kafka.delivery.fencing import COMMIT, OutputBucket, read_receipt
from teacup.kafka.delivery.receipt import Batch, Receipt
from teacup.kafka.delivery.transactional import TransactionalWriter
from teacup.kafka.errors import Fenced, OutputTaken, ReceiptRefused, TakenOver
from tests.teacup.kafka.delivery.attempts import attempt, committed, is_settled


@pytest.fixture
def buckets(topic_factory):
    topic = topic_factory(1, prefix="out")
    return [OutputBucket(f"job-{topic}", number, topic) for number in (0, 1)]


def generations(kafka, buckets):
    return [receipt and receipt.generation for receipt in (read_receipt(kafka, bucket)[0] for bucket in buckets)]


def test_a_new_checkpoint_claims_every_bucket(kafka, buckets):
    """Before its first batch, whose missing receipt then cannot be mistaken for a lost one."""
    claim.begin(kafka, buckets, claim.Start("g", {}))

    assert generations(kafka, buckets) == ["g", "g"]
    assert attempt(kafka, buckets[0], 1, [b"row"]) == 1


def test_a_job_that_must_not_begin_has_fenced_nobody(kafka, buckets):
    """Here a single bucket has somebody else's receipt; that writer continues."""
    attempt(kafka, buckets[1], 1, [b"theirs"], generation="theirs")
    with closing(TransactionalWriter(kafka, buckets[1])) as running:
        running.write(buckets[1].topic, None, [b"more"], None, [0])

        with pytest.raises(OutputTaken, match="may still run"):
            claim.begin(kafka, buckets, claim.Start("ours", {}))

        running.commit(Receipt("theirs", 2, "d", 1, True), {buckets[1].topic: 1})
    assert generations(kafka, buckets) == [None, "theirs"]
    assert committed(kafka, buckets[0].topic) == [b"theirs", b"more"]


def test_buckets_that_a_checkpoint_did_not_have_before_are_claimed(kafka, buckets):
    """Their first receipt is of a later batch than the checkpoint's first; and again after there were fewer."""
    attempt(kafka, buckets[0], 1, [b"row"])

    claim.begin(kafka, buckets, claim.Start("g", {0: Batch("g", 1, "d")}))
    assert generations(kafka, buckets) == ["g", "g"]
    assert attempt(kafka, buckets[1], 2, [b"row"]) == 1

    attempt(kafka, buckets[0], 3, [b"row"])
    claim.begin(kafka, buckets, claim.Start("g", {0: Batch("g", 3, "d")}))
    assert attempt(kafka, buckets[1], 4, [b"row"]) == 1

    with pytest.raises(ReceiptRefused):  # the checkpoint was put back: bucket 1 is ahead of it
        claim.begin(kafka, buckets, claim.Start("g", {0: Batch("g", 3, "d")}))


def test_a_checkpoint_that_was_put_back_has_fenced_nobody(kafka, buckets):
    """It has planned batch 1, but batch 2 is in."""
    for number in (1, 2):
        attempt(kafka, buckets[0], number, [b"row"])
    with closing(TransactionalWriter(kafka, buckets[0])) as running:
        running.begin()

        with pytest.raises(ReceiptRefused, match="put back, or copied"):
            claim.begin(kafka, buckets, claim.Start("g", {n: Batch("g", 1, "d") for n in (0, 1)}))

        running.commit(Receipt("g", 3, "d", 0, True), {})


def test_taking_over_ends_what_the_older_checkpoint_still_does(kafka, buckets):
    """Its attempts may also come later: they find the claim, whichever batch they are about."""
    attempt(kafka, buckets[0], 1, [b"old"], generation="old")

    claim.begin(kafka, buckets, claim.Start("new", {}, take_over=True))

    for number in (1, 2):
        with pytest.raises(OutputTaken):
            attempt(kafka, buckets[0], number, [b"late"], generation="old")
    assert attempt(kafka, buckets[0], 1, [b"new"], generation="new") == 1
    assert committed(kafka, buckets[0].topic) == [b"old", b"new"]


def test_a_new_checkpoint_with_fewer_buckets_takes_over_all_of_them(kafka, buckets):
    """Otherwise the older job's attempts could still write to those that the new job does not have."""
    claim.begin(kafka, buckets, claim.Start("old", {}))

    with pytest.raises(OutputTaken):
        claim.begin(kafka, buckets[:1], claim.Start("new", {}))
    claim.begin(kafka, buckets[:1], claim.Start("new", {}, take_over=True))

    assert generations(kafka, buckets) == ["new", "new"]
    with pytest.raises(OutputTaken):
        attempt(kafka, buckets[1], 2, [b"late"], generation="old")


def test_a_claim_is_repeated_if_an_attempt_of_the_older_job_has_fenced_it(kafka, buckets, monkeypatch):
    """The older job still runs, and its tasks are retried a few times; then they find the claim."""
    claim.begin(kafka, buckets[:1], claim.Start("old", {}))
    really, fenced = TransactionalWriter.commit, []

    def overtaken(self, receipt, written):
        if receipt.generation == "new" and len(fenced) < 2:
            fenced.append(TransactionalWriter(kafka, buckets[0]).close())
        really(self, receipt, written)

    monkeypatch.setattr(TransactionalWriter, "commit", overtaken)

    claim.begin(kafka, buckets[:1], claim.Start("new", {}, take_over=True))

    assert len(fenced) == 2
    assert generations(kafka, buckets) == ["new", None]


def test_of_two_new_checkpoints_at_once_the_second_leaves_no_trace(kafka, buckets, monkeypatch):
    """Both have looked, and found nothing. If each got some buckets, neither could ever begin."""
    really = TransactionalWriter.commit

    def overtaken(self, receipt, written):
        if receipt.generation == "ours" and self._bucket == buckets[0]:
            with closing(TransactionalWriter(kafka, buckets[0])) as first:
                really(first, Receipt.claim("theirs", 0), {})
        really(self, receipt, written)

    monkeypatch.setattr(TransactionalWriter, "commit", overtaken)

    with pytest.raises(OutputTaken, match="bucket 0"):
        claim.begin(kafka, buckets, claim.Start("ours", {}))

    assert generations(kafka, buckets) == ["theirs", None]


@pytest.mark.parametrize("attempt", range(3))
def test_of_new_checkpoints_that_begin_at_once_one_gets_the_whole_output(kafka, buckets, attempt):
    """Whichever it is; the others end as if they had come later."""

    def began(generation):
        try:
            claim.begin(kafka, buckets, claim.Start(generation, {}))
        except OutputTaken:
            return None
        return generation

    with ThreadPoolExecutor(3) as pool:
        found = [winner for winner in pool.map(began, ["a", "b", "c"]) if winner]

    assert len(found) == 1
    assert generations(kafka, buckets) == found * 2


def test_a_claim_whose_commit_ends_with_an_unknown_error_looks_again(kafka, buckets, monkeypatch):
    """So answers a coordinator that is fencing the producer meanwhile."""
    really, unknown = TransactionalWriter._in_time, []

    def failing(self, what, timeout_s, call, gives_up=None):
        def answered_unknown(_):
            with closing(TransactionalWriter(kafka, buckets[0])) as first:
                first.commit(Receipt.claim("theirs", 0), {})
            raise KafkaException(KafkaError(KafkaError.UNKNOWN))

        if what == COMMIT and not unknown:
            unknown.append(what)
            call = answered_unknown
        really(self, what, timeout_s, call, gives_up)

    monkeypatch.setattr(TransactionalWriter, "_in_time", failing)

    with pytest.raises(OutputTaken):
        claim.begin(kafka, buckets, claim.Start("ours", {}))

    assert generations(kafka, buckets) == ["theirs", None]


def test_a_start_that_has_ended_and_wrote_nothing_keeps_nobody_out(kafka, buckets):
    """Its checkpoint may have been removed. One that may still run, or has written a row anywhere, does."""
    claim.begin(kafka, buckets, claim.Start("first", {}, claimed_by="a start"))
    with pytest.raises(OutputTaken, match="about to write its first batch \\(a start\\)"):
        claim.begin(kafka, buckets, claim.Start("second", {}, has_ended=lambda claimed_by: False))
    claim.begin(
        kafka,
        buckets,
        claim.Start("second", {}, claimed_by="another", has_ended=lambda claimed_by: claimed_by == "a start"),
    )
    assert generations(kafka, buckets) == ["second", "second"]
    with pytest.raises(OutputTaken):
        attempt(kafka, buckets[0], 1, [b"late"], generation="first")

    attempt(kafka, buckets[1], 1, [b"row"], generation="second")
    with pytest.raises(OutputTaken):
        claim.begin(kafka, buckets, claim.Start("third", {}, has_ended=lambda claimed_by: True))


def test_of_two_that_replace_a_claim_at_once_the_second_leaves_no_trace(kafka, buckets, monkeypatch):
    """Both have seen that claim; the one that came first is not the one that has ended."""
    claim.begin(kafka, buckets, claim.Start("ended", {}, claimed_by="a start"))
    really = TransactionalWriter.commit

    def overtaken(self, receipt, written):
        if receipt.generation == "ours" and self._bucket == buckets[0]:
            with closing(TransactionalWriter(kafka, buckets[0])) as first:
                really(first, Receipt.claim("theirs", 0, "a start"), {})
        really(self, receipt, written)

    monkeypatch.setattr(TransactionalWriter, "commit", overtaken)

    with pytest.raises(OutputTaken, match="bucket 0"):
        claim.begin(kafka, buckets, claim.Start("ours", {}, has_ended=lambda claimed_by: claimed_by == "a start"))

    assert generations(kafka, buckets) == ["theirs", "ended"]


def terms(kafka, buckets):
    return [receipt and receipt.term for receipt in (read_receipt(kafka, bucket)[0] for bucket in buckets)]


def test_a_process_that_was_taken_for_lost_writes_nothing_more(kafka, buckets):
    """The next term is in every receipt, also where its first batch has left none; what was written stays known."""
    assert claim.begin(kafka, buckets[:1], claim.Start("g", {}, terms=True)) == 1
    assert attempt(kafka, buckets[0], 1, [b"a", b"b"], term=1) == 2
    planned = {0: Batch("g", 1, "d"), 1: Batch("g", 1, "d")}

    assert claim.begin(kafka, buckets, claim.Start("g", planned, terms=True)) == 2

    assert terms(kafka, buckets) == [2, 2]
    with suppress(Fenced), pytest.raises(TakenOver):  # with the producer of its last batch
        attempt(kafka, buckets[0], 2, [b"late"], term=1)
    with pytest.raises(TakenOver, match="another process of this job has taken over"):
        attempt(kafka, buckets[0], 2, [b"late"], term=1)
    with pytest.raises(TakenOver):
        attempt(kafka, buckets[1], 1, [b"late"], term=1)
    assert attempt(kafka, buckets[0], 1, [b"a", b"b"], term=2) == 0
    assert attempt(kafka, buckets[1], 1, [b"c"], term=2) == 1
    assert sorted(committed(kafka, buckets[0].topic)) == [b"a", b"b", b"c"]


def test_an_open_transaction_of_a_lost_process_ends_when_another_takes_over(kafka, buckets):
    """It had written half of its batch; its next call fails, and readers are not kept waiting."""
    claim.begin(kafka, buckets[:1], claim.Start("g", {}, terms=True))
    with closing(TransactionalWriter(kafka, buckets[0])) as lost:
        lost.write(buckets[0].topic, None, [b"half"], None, [0])

        claim.begin(kafka, buckets[:1], claim.Start("g", {0: Batch("g", 1, "d")}, terms=True))

        assert is_settled(kafka, buckets[0].topic)
        with pytest.raises(Fenced):
            lost.commit(Receipt("g", 1, "d", 1, True, term=1), {buckets[0].topic: 1})
    assert attempt(kafka, buckets[0], 1, [b"half", b"rest"], term=2) == 2
    assert committed(kafka, buckets[0].topic) == [b"half", b"rest"]


def test_a_start_without_a_standby_has_a_term_where_there_were_some(kafka, buckets):
    """Else its own batches would be refused; and a checkpoint without any keeps the receipts of earlier versions."""
    claim.begin(kafka, buckets, claim.Start("g", {}, terms=True))
    assert claim.begin(kafka, buckets, claim.Start("g", {n: Batch("g", 1, "d") for n in (0, 1)})) == 2

    assert claim.begin(kafka, buckets, claim.Start("new", {}, take_over=True)) == 0
    assert terms(kafka, buckets) == [0, 0]


def test_of_processes_that_take_over_at_once_each_has_its_own_term(kafka, buckets):
    """The later one has the output; the others found that out while they claimed, or will with their first batch."""
    claim.begin(kafka, buckets, claim.Start("g", {}, terms=True))
    planned = {n: Batch("g", 1, "d") for n in (0, 1)}

    def start(_):
        try:
            return claim.begin(kafka, buckets, claim.Start("g", planned, terms=True))
        except (TakenOver, Fenced):
            return None

    with ThreadPoolExecutor(3) as pool:
        won = [term for term in pool.map(start, range(3)) if term is not None]

    assert len(set(won)) == len(won)
    assert terms(kafka, buckets[:1]) >= [max(won)]
    last = max(terms(kafka, buckets))
    assert attempt(kafka, buckets[1], 1, [b"row"], term=last) == 1
    for term in set(won) - {last}:
        with pytest.raises(TakenOver):
            attempt(kafka, buckets[1], 1, [b"row"], term=term)
