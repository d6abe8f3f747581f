"""A broker that asks for TLS, logins and ACLs: every kind of client reaches it by librdkafka's own properties."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import closing

import pytest

from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket, settle
from teacup.kafka.delivery.receipt import Batch
from teacup.kafka.errors import AccessRefused, NotLetIn
from teacup.kafka.grants import Grant
from teacup.kafka.log.admin import wait_for_brokers
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.support.guarded import PASSWORD, Guarded, name_of


@pytest.mark.parametrize("way", ["scram over tls", "token over tls", "certificate"])
def test_every_client_takes_every_login(guarded: Guarded, caplog: pytest.LogCaptureFixture, way: str) -> None:
    """Writer, transactions, reader, positions, with the ACLs that they need; and no log line shows the password."""
    caplog.set_level(logging.DEBUG)
    logins = {"scram over tls": lambda: guarded.user("secure"), "token over tls": guarded.bearer}
    user = logins.get(way, guarded.certified)()
    (safe,) = guarded.topics("safe")
    bucket = OutputBucket(f"job-{uuid.uuid4().hex[:8]}", 0, safe)
    topic = Grant("topic", safe, ("Read", "Write", "DescribeConfigs"))
    guarded.grant(name_of(user), [topic, Grant("group", safe, ("Read",)), *bucket.grants])
    writer = TopicWriter(user)
    writer.write(safe, [b"k"], [b"at least once"], timestamps=[1])
    writer.flush()
    writer.close()
    settle(user, [bucket])
    delivery = ExactlyOnce(user, bucket, Batch("g", 1, "d"))
    delivery.written_so_far()
    delivery.write(safe, None, [b"exactly once"], None, [2])
    delivery.commit(1, {safe: 1}, done=True)
    delivery.abandon()
    settle(user, [bucket])  # committed records become readable a little later: by now they are
    log, reader, group = BrokerLog(safe, user), RangeReader(safe, user), GroupOffsets(safe, user)
    end = log.ends()[0].stable

    values = [v for batch in reader.read(0, 0, end) for v in batch.column("value").to_pylist()]
    group.commit({(safe, 0): 1})

    assert values == [b"at least once", b"exactly once"]
    assert group.read([(safe, 0)]) == {(safe, 0): 1}
    assert PASSWORD not in caplog.text
    log.close()
    reader.close()
    group.close()


WRONG = {
    "password": ({"sasl.password": "wrong-one"}, "refuse user 'user-", "correct `sasl.username`, `sasl.password`"),
    "mechanism": ({"sasl.mechanism": "PLAIN"}, "refuse user 'user-", "`sasl.mechanism` (PLAIN)"),
    "authority": ({"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}, "TLS with brokers", "`ssl.ca.location`"),
}


@pytest.mark.parametrize("what", WRONG)
def test_who_is_not_let_in_is_told_at_once_and_what_to_correct(
    guarded: Guarded, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    """Not after a minute of tries whose answer is the same; the secret is not shown."""
    changes, refused, remedy = WRONG[what]
    user = {**guarded.user("secure"), **changes}
    began = time.monotonic()

    with pytest.raises(NotLetIn) as error:
        wait_for_brokers(user, give_up_after_s=45.0)

    assert time.monotonic() - began < 40
    assert refused in str(error.value)
    assert remedy in str(error.value)
    assert user["bootstrap.servers"] in str(error.value)
    assert "wrong-one" not in caplog.text + str(error.value)


def test_a_certificate_that_is_missing_is_reported_as_such(guarded: Guarded) -> None:
    """The brokers end the handshake; nothing else says why."""
    user = {key: value for key, value in guarded.certified().items() if "certificate" not in key and "key" not in key}

    with pytest.raises(NotLetIn, match=r"ssl\.certificate\.location"):
        wait_for_brokers(user, give_up_after_s=45.0)


def test_a_topic_that_a_user_may_not_use_is_not_retried(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call says so, and so does a login that is refused in the middle of the work."""
    monkeypatch.setattr("teacup.kafka.log.broker_log._ANSWERED_WITHIN_S", 2.0)
    user = guarded.user()
    (hidden,) = guarded.topics("hidden")
    began = time.monotonic()
    for wrong, said in (({}, "TOPIC_AUTHORIZATION_FAILED"), ({"sasl.password": "wrong-one"}, "uthentication")):
        log = BrokerLog(hidden, {**user, **wrong})

        with pytest.raises(Exception, match=said) as error:
            log.partition_count()

        assert error.value.exit_code == 12
        log.close()
    with closing(RangeReader(hidden, user)) as reader, pytest.raises(AccessRefused, match="TOPIC_AUTHORIZATION_FAILED"):
        next(reader.read(0, 0, 1))
    assert time.monotonic() - began < 40
