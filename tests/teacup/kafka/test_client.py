"""Configurations: what is refused, what passes, what is masked; how errors travel, and librdkafka's texts."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError

from teacup.kafka import client
from teacup.kafka.client import admin, masked, validate, without_guess
from teacup.kafka.errors import ConfigError, DeliveryFailed, OffsetOutOfRange

BROKER = {"bootstrap.servers": "localhost:9092"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enable.auto.commit", "true"),
        ("auto.offset.reset", "latest"),
        ("enable.idempotence", "false"),
        ("acks", "1"),
        ("transactional.id", "mine"),
        ("isolation.level", "none"),
    ],
)
def test_a_property_that_would_lose_data_is_refused_by_name(key: str, value: str) -> None:
    """The message names the property, its value and the reason."""
    with pytest.raises(ConfigError, match=f"{key}: '{value}' is refused: .+"):
        validate({**BROKER, key: value})


def test_the_safe_value_of_a_guarded_property_passes() -> None:
    """Stating what holds anyway is not an error."""
    validate({**BROKER, "enable.idempotence": "true", "acks": "all", "isolation.level": "read_uncommitted"})


def test_missing_brokers_are_reported() -> None:
    """Nothing works without an address."""
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        validate({"client.id": "x"})


def test_an_unknown_property_is_reported_without_secrets() -> None:
    """librdkafka's own complaint is passed on, the password is not."""
    with pytest.raises(ConfigError, match=r"no\.such\.thing") as caught:
        admin({**BROKER, "no.such.thing": "1", "sasl.password": "hunter2"})

    assert "hunter2" not in str(caught.value)


def test_secrets_are_masked() -> None:
    """Passwords, keys and tokens never reach a log; the rest stays readable."""
    secret = ["sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret"]

    shown = masked({**BROKER, **dict.fromkeys(secret, "hunter2")})

    assert shown == {**BROKER, **dict.fromkeys(secret, "***")}


@pytest.mark.parametrize(
    "error", [OffsetOutOfRange("t", 1, 5, 10, 20), DeliveryFailed("t", 1, "too large", 3)], ids=["range", "delivery"]
)
def test_errors_pass_between_processes(error: Exception) -> None:
    """A task's error reaches the driver by pickle."""
    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


FAILED = "ApiVersionRequest failed"
GUESS = "broker version < 0.10 (see api.version.request configuration)"


@pytest.mark.parametrize(
    ("text", "kept", "paused"),
    [
        (f"b:9092/1: {FAILED}: Local: Timed out: probably due to {GUESS}", "b:9092/1: ApiVersionRequest failed", True),
        (
            "Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol configuration "
            "(connecting to a SSL listener?) or broker version is < 0.10 (see api.version.request)",
            "(connecting to a SSL listener?)",
            False,
        ),
        (
            "while requesting ApiVersion: might be caused by broker version < 0.10 (see api.version.request)",
            "Api",
            False,
        ),
        ("Topic t [0]: no leader", "Topic t [0]: no leader", False),
    ],
)
def test_its_guess_about_an_old_broker_is_left_out(text: str, kept: str, paused: bool) -> None:
    """A broker that accepts connections and does not answer is paused or overloaded."""
    shown = without_guess(text)

    assert kept in shown
    assert "0.10" not in shown
    assert ("paused" in shown) == paused


def test_errors_and_the_log_are_without_it(caplog: pytest.LogCaptureFixture) -> None:
    """Whichever way it comes."""
    text = f"{FAILED}: Local: Timed out: probably due to {GUESS}"

    error = client.translate(KafkaError(KafkaError._TRANSPORT, text), "look-up", "t")
    client.librdkafka.warning("%s", text)

    for shown in (str(error), caplog.text):
        assert FAILED in shown
        assert "0.10" not in shown
