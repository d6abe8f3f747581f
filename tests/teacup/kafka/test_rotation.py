"""Logins in files that change while clients live."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teacup.kafka import client, rotation
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.native.rdkafka import bound
from teacup.kafka.read.native_fetch import OwnConsumer


@pytest.fixture
def kafka(tmp_path: Path) -> dict[str, str]:
    """Properties whose password is in a file; nobody listens at the address."""
    (tmp_path / "password").write_text("first\n")
    return {
        "bootstrap.servers": "127.0.0.1:9",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "clicks",
        "sasl.password": f"${{file:{tmp_path / 'password'}}}",
        "log_level": "0",
    }


def own(kafka: dict[str, str]) -> OwnConsumer:
    functions = bound()
    assert functions is not None
    return OwnConsumer(functions, kafka, {}, lambda _: None)


MADE: dict[str, Callable[[dict[str, str]], Any]] = {
    "producer": lambda kafka: client.producer(kafka, {}, lambda _: None, lambda *_: None),
    "consumer": lambda kafka: client.consumer(kafka, {}, lambda _: None),
    "admin": client.admin,
    "our own consumer": own,
}


@pytest.mark.parametrize("kind", MADE)
def test_a_client_takes_a_password_that_has_changed(
    kafka: dict[str, str], kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once; librdkafka accepts it, and no line has it."""
    caplog.set_level(logging.INFO, "teacup.kafka.rotation")
    made = MADE[kind](kafka)
    rotation.look()
    assert caplog.messages == []

    (tmp_path / "password").write_text("second\n")
    rotation.look()
    rotation.look()

    assert caplog.messages == ["the login of clicks has changed"]
    assert "second" not in caplog.text
    del made


def test_a_client_is_forgotten_with_its_owner(kafka: dict[str, str]) -> None:
    """A job makes clients for months."""
    gc.collect()  # of other tests
    made = client.admin(kafka)
    rotation.look()
    before = len(rotation._followed)
    del made
    gc.collect()
    rotation.look()

    assert len(rotation._followed) == before - 1


def test_without_its_file_a_client_cannot_be_made_for_now(kafka: dict[str, str], tmp_path: Path) -> None:
    """Whoever replaces it does so in a moment: what asked tries again. Those that live are left as they are."""
    made = client.admin(kafka)
    (tmp_path / "password").unlink()
    rotation.look()

    with pytest.raises(KafkaUnavailable, match=r"sasl.password: the file .*password cannot be read"):
        client.admin(kafka)
    del made
