"""A broker that grants nothing by default: a missing grant is named at once."""

from __future__ import annotations

import multiprocessing
import time
import uuid

import pytest
from confluent_kafka import KafkaError

from teacup.base.errors import ExitCode
from teacup.kafka.delivery import claim
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.errors import AccessRefused, KafkaIOError
from teacup.kafka.grants import Grant
from teacup.kafka.log.admin import Described, describe
from teacup.kafka.log.groups import error_codes
from tests.support.guarded import Guarded, name_of


def test_each_grant_that_is_missing_is_named_and_those_of_the_documents_suffice(guarded: Guarded) -> None:
    """Group, then transactional id, until all are granted. Nobody waits a minute for a broker that has answered."""
    kafka = guarded.user()
    (out,) = guarded.topics("out")
    bucket = OutputBucket(f"job-{uuid.uuid4().hex[:8]}", 0, out)
    group, transactions = bucket.grants

    def refusal() -> str:
        began = time.monotonic()
        with pytest.raises(AccessRefused) as error:
            claim.begin(kafka, [bucket], claim.Start("g", {}))
        assert time.monotonic() - began < 25
        assert error.value.exit_code is ExitCode.ACCESS
        return str(error.value)

    def grant(*grants: Grant) -> None:
        guarded.grant(name_of(kafka), grants)

    grant(Grant("topic", out, ("Read", "Write")))
    refusals = [refusal()]
    grant(Grant("group", group.name, ("Describe",), prefixed=True))
    refusals.append(refusal())
    grant(transactions)
    refusals.append(refusal())
    grant(group)
    claim.begin(kafka, [bucket], claim.Start("g", {}))

    of_group, of_transactions, of_group_again = refusals
    assert "GROUP_AUTHORIZATION_FAILED" in of_group
    assert f"grant Read on groups that begin with 'teacup.{bucket.job}/'" in of_group
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in of_transactions
    assert f"grant Write on transactional ids that begin with 'teacup.{bucket.job}/'" in of_transactions
    assert "grant Read on groups" in of_group_again
    receipt, _ = read_receipt(kafka, bucket)
    assert receipt is not None
    assert receipt.generation == "g"


def test_what_a_user_may_do_shows_without_doing_it(guarded: Guarded) -> None:
    """Topics that may not be described, and groups that may be described but not read."""
    kafka = guarded.user()
    (seen,) = guarded.topics("seen", partitions=3)
    (hidden,) = guarded.topics("hidden")
    guarded.grant(name_of(kafka), [Grant("topic", seen, ("Describe",)), Grant("group", "looked-at", ("Describe",))])

    topics = describe(kafka, [seen, hidden, "none"])
    codes = error_codes(kafka, ["looked-at", "others"], reading=True)

    assert topics[seen] == Described(3, frozenset({"describe"}))
    assert "TOPIC_AUTHORIZATION_FAILED" in str(topics[hidden])
    assert isinstance(topics["none"], KafkaIOError)
    assert codes == dict.fromkeys(["looked-at", "others"], KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert multiprocessing.active_children() == []
