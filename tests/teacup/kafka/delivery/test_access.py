"""A broker that grants nothing by default: a missing grant is named at once."""

from __future__ import annotations

import functools
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from teacup.kafka.delivery import claim
from teacup.kafka.delivery.fencing import OutputBucket, read_receipt
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.admin import Described, describe
from teacup.kafka.log.groups import error_codes
from tests.support.saslbroker import sasl_broker
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, str], AdminClient]]:
    """Properties for a user with no rights at all, and an admin client with all rights."""
    broker, user = sasl_broker(
        tmp_path_factory.mktemp("guarded") / "broker",
        "SASL_PLAINTEXT",
        "secret",
        {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    with broker:
        yield user, AdminClient({"bootstrap.servers": broker.bootstrap})


def granted(admin: AdminClient, kind: ResourceType, name: str, operation: AclOperation, pattern: Any) -> None:
    """Grant it to the user, and wait until the broker has read it in its log."""
    allowed = ("User:teacup", "*", operation, AclPermissionType.ALLOW)
    binding = AclBinding(kind, name, pattern, *allowed)
    admin.create_acls([binding])[binding].result(30)
    wait_until(lambda: binding in admin.describe_acls(AclBindingFilter(kind, name, pattern, *allowed)).result(30))


def test_each_grant_that_is_missing_is_named_and_those_of_the_documents_suffice(
    guarded: tuple[dict[str, str], AdminClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group, then transactional id, until all are granted. Nobody waits a minute for a broker that has answered."""
    monkeypatch.setattr(claim, "ASK_AFTER_S", 0.5)
    kafka, admin = guarded
    admin.create_topics([NewTopic("out", 1, 1)])["out"].result(60)
    bucket = OutputBucket("job", 0, "out")

    grant = functools.partial(granted, admin)

    def refusal() -> str:
        began = time.monotonic()
        with pytest.raises(KafkaIOError) as error:
            claim.begin(kafka, [bucket], "g", {})
        assert time.monotonic() - began < claim.ASK_AFTER_S + 25
        return str(error.value)

    grant(ResourceType.TOPIC, "out", AclOperation.READ, ResourcePatternType.LITERAL)
    grant(ResourceType.TOPIC, "out", AclOperation.WRITE, ResourcePatternType.LITERAL)
    refusals = [refusal()]
    grant(ResourceType.GROUP, "teacup.job/", AclOperation.DESCRIBE, ResourcePatternType.PREFIXED)
    refusals.append(refusal())
    grant(ResourceType.TRANSACTIONAL_ID, "teacup.job/", AclOperation.WRITE, ResourcePatternType.PREFIXED)
    refusals.append(refusal())
    grant(ResourceType.GROUP, "teacup.job/", AclOperation.READ, ResourcePatternType.PREFIXED)
    claim.begin(kafka, [bucket], "g", {})

    group, transactional_id, group_again = refusals
    assert "GROUP_AUTHORIZATION_FAILED" in group
    assert "Read on group 'teacup.job/out/0'" in group
    assert "prefix 'teacup.job/out/'" in group
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in transactional_id
    assert "Write on transactional id 'teacup.job/out/0'" in transactional_id
    assert "Read on group 'teacup.job/out/0'" in group_again
    receipt, _ = read_receipt(kafka, bucket)
    assert receipt is not None
    assert receipt.generation == "g"


def test_what_a_user_may_do_shows_without_doing_it(guarded: tuple[dict[str, str], AdminClient]) -> None:
    """Topics that may not be described, and groups that may be described but not read."""
    kafka, admin = guarded
    for future in admin.create_topics([NewTopic("seen", 3, 1), NewTopic("hidden", 1, 1)]).values():
        future.result(60)
    for kind, name in ((ResourceType.TOPIC, "seen"), (ResourceType.GROUP, "looked-at")):
        granted(admin, kind, name, AclOperation.DESCRIBE, ResourcePatternType.LITERAL)

    topics = describe(kafka, ["seen", "hidden", "none"])
    codes = error_codes(kafka, ["looked-at", "others"], reading=True)

    assert topics["seen"] == Described(3, frozenset({"describe"}))
    assert "TOPIC_AUTHORIZATION_FAILED" in str(topics["hidden"])
    assert isinstance(topics["none"], KafkaIOError)
    assert codes == dict.fromkeys(["looked-at", "others"], KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert multiprocessing.active_children() == []
