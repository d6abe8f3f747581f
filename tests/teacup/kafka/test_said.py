"""librdkafka's texts, as people get them."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from teacup.kafka import client
from teacup.kafka.client import without_guess

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
