"""A broker that asks for TLS and SASL: every kind of client reaches it by librdkafka's own properties."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import trustme
from confluent_kafka.admin import NewTopic
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from teacup.kafka import client
from teacup.kafka.delivery.delivery import ExactlyOnce
from teacup.kafka.delivery.fencing import OutputBucket, settle
from teacup.kafka.delivery.receipt import Batch
from teacup.kafka.errors import KafkaIOError
from teacup.kafka.log.broker_log import BrokerLog
from teacup.kafka.log.groups import GroupOffsets
from teacup.kafka.read.range_reader import RangeReader
from teacup.kafka.write.writer import TopicWriter
from tests.support.saslbroker import sasl_broker

PASSWORD = "correct horse"
STORE = "battery staple"


def key_store(certificate: trustme.LeafCert) -> bytes:
    """As Java reads one."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    own, *signers = (load_pem_x509_certificate(pem.bytes()) for pem in certificate.cert_chain_pems)
    assert isinstance(key, EllipticCurvePrivateKey)
    return serialize_key_and_certificates(b"broker", key, own, signers, BestAvailableEncryption(STORE.encode()))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Properties for a broker's SASL_SSL listener, with a certificate made here."""
    folder = tmp_path_factory.mktemp("secured")
    keys, authority, signer = folder / "broker.p12", folder / "ca.pem", trustme.CA()
    signer.cert_pem.write_to_path(authority)
    keys.write_bytes(key_store(signer.issue_cert("127.0.0.1")))
    broker, user = sasl_broker(
        folder / "broker",
        "SASL_SSL",
        PASSWORD,
        {"ssl.keystore.location": str(keys), "ssl.keystore.password": STORE, "ssl.keystore.type": "PKCS12"},
    )
    with broker:
        yield {**user, "ssl.ca.location": str(authority)}


def test_every_client_takes_tls_and_sasl(secured: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Admin, writer, transactions, reader, positions; and no log line shows the password."""
    caplog.set_level(logging.DEBUG)
    admin = client.admin(secured)  # kept alive: its calls end with it
    admin.create_topics([NewTopic("safe", 1, 1)])["safe"].result(60)
    writer = TopicWriter(secured)
    writer.write("safe", [b"k"], [b"at least once"], timestamps=[1])
    writer.flush()
    writer.close()
    bucket = OutputBucket("job", 0, "safe")
    settle(secured, [bucket])
    delivery = ExactlyOnce(secured, bucket, Batch("g", 1, "d"))
    delivery.written_so_far()
    delivery.write("safe", None, [b"exactly once"], None, [2])
    delivery.commit(1, {"safe": 1}, done=True)
    delivery.abandon()
    settle(secured, [bucket])  # committed records become readable a little later: by now they are
    log, reader, group = BrokerLog("safe", secured), RangeReader("safe", secured), GroupOffsets("g", secured)
    end = log.ends()[0].stable

    values = [v for batch in reader.read(0, 0, end) for v in batch.column("value").to_pylist()]
    group.commit({("safe", 0): 1})

    assert values == [b"at least once", b"exactly once"]
    assert group.read([("safe", 0)]) == {("safe", 0): 1}
    assert PASSWORD not in caplog.text
    log.close()
    reader.close()
    group.close()


def test_a_wrong_password_is_reported_and_not_shown(
    secured: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the broker's address, and without a retry: the answer would be the same."""
    monkeypatch.setattr("teacup.kafka.log.broker_log._ANSWERED_WITHIN_S", 2.0)
    log = BrokerLog("safe", {**secured, "sasl.password": "wrong-one"})

    with pytest.raises(KafkaIOError) as error:
        log.ends()

    assert secured["bootstrap.servers"] in str(error.value)
    assert "uthentication" in caplog.text + str(error.value)
    assert "wrong-one" not in caplog.text + str(error.value)
    log.close()
