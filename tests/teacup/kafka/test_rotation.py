"""Logins in files that change while clients live."""

from __future__ import annotations

import base64
import gc
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from teacup.kafka import client, rotation
from teacup.kafka.errors import KafkaUnavailable
from teacup.kafka.native.rdkafka import bound
from teacup.kafka.read.consumer import OwnConsumer
from tests.support.guarded import Guarded
from tests.support.waiting import wait_until


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
    return OwnConsumer(bound(), kafka, {}, lambda _: None)


MADE: dict[str, Callable[[dict[str, str]], Any]] = {
    "producer": lambda kafka: client.producer(kafka, {}, lambda _: None),
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
    rotation.follow_files()
    assert caplog.messages == []

    (tmp_path / "password").write_text("second\n")
    rotation.follow_files()
    rotation.follow_files()

    assert caplog.messages == ["the login of clicks has changed"]
    assert "second" not in caplog.text
    del made


class Client:
    """Notes the logins that it is given."""

    def __init__(self) -> None:
        self.logins: list[tuple[str, str]] = []

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.logins.append((username, password))


def test_a_login_is_given_once_for_each_change(kafka: dict[str, str], tmp_path: Path) -> None:
    """The name as well, if that is in a file."""
    (tmp_path / "user").write_text("clicks")
    kafka["sasl.username"] = f"${{file:{tmp_path / 'user'}}}"
    followed = Client()
    rotation.follow(followed, kafka, {"sasl.username": "clicks", "sasl.password": "first"})
    for password in ("first", "second", "second", "third"):
        (tmp_path / "password").write_text(password)
        rotation.follow_files()
    (tmp_path / "user").write_text("views\n")
    rotation.follow_files()

    assert followed.logins == [("clicks", "second"), ("clicks", "third"), ("views", "third")]


def test_a_client_is_forgotten_with_its_owner(kafka: dict[str, str]) -> None:
    """A job makes clients for months."""
    gc.collect()  # of other tests
    made = client.admin(kafka)
    rotation.follow_files()
    before = len(rotation._followed)
    del made
    gc.collect()
    rotation.follow_files()

    assert len(rotation._followed) == before - 1


def test_without_its_file_a_client_cannot_be_made_for_now(kafka: dict[str, str], tmp_path: Path) -> None:
    """Whoever replaces it does so in a moment: what asked tries again. Those that live are left as they are."""
    made = client.admin(kafka)
    (tmp_path / "password").unlink()
    rotation.follow_files()

    with pytest.raises(KafkaUnavailable, match=r"sasl.password: the file .*password cannot be read"):
        client.admin(kafka)
    del made


NOW_S = 1_800_000_000.0


def test_a_token_is_read_again_once_a_minute_and_before_it_expires(tmp_path: Path) -> None:
    """Its own claim says when; one without is read again all the same."""
    file = tmp_path / "token"
    written = f"${{file:{file}}}"

    def claimed(claims: object) -> str:
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        file.write_text(f"e30.{body}.c2lnbmVk\n")
        return file.read_text().strip()

    for claims, until_s in (({"exp": NOW_S + 20}, 20), ({"exp": NOW_S + 900}, 60), ({}, 60), (["exp"], 60)):
        token = claimed(claims)
        assert rotation.token_now(written, NOW_S) == (token, NOW_S + until_s)
    file.write_text("opaque")
    assert rotation.token_now(written, NOW_S) == ("opaque", NOW_S + 60)
    claimed({"exp": NOW_S - 5})
    with pytest.raises(ValueError, match="the token has expired 5 s ago"):
        rotation.token_now(written, NOW_S)
    file.unlink()
    with pytest.raises(ValueError, match=r"the file .*token cannot be read"):
        rotation.token_now(written, NOW_S)


def test_a_certificate_that_is_replaced_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients that live keep the one before; while it is being replaced there may be none."""
    file = tmp_path / "client.pem"
    file.write_text("first")
    rotation.watch_certificate({"ssl.certificate.location": str(file)})
    rotation.follow_files()
    file.unlink()
    rotation.follow_files()
    assert caplog.messages == []

    file.write_text("second")
    os.utime(file, (NOW_S, NOW_S))
    rotation.follow_files()
    rotation.follow_files()

    (said,) = caplog.messages
    assert f"the certificate {file} has changed" in said
    assert "Restart the job" in said


IDLE_S = 1.0


@pytest.mark.slow
def test_a_client_that_lives_logs_in_with_the_new_password(guarded: Guarded, tmp_path: Path) -> None:
    """On a real broker, which then refuses a client that has kept the old one; both close connections that are idle."""
    user = guarded.user() | {"connections.max.idle.ms": str(int(1_000 * IDLE_S)), "log_level": "0"}
    password = tmp_path / "password"
    password.write_text(user["sasl.password"])
    trouble: list[KafkaError] = []
    left_alone = client.admin(user, trouble.append)
    followed = client.admin({**user, "sasl.password": f"${{file:{password}}}"}, trouble.append)
    for each in (left_alone, followed):
        each.list_topics(timeout=30)
    assert trouble == []

    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    changed = UserScramCredentialUpsertion(user["sasl.username"], credential, b"another")
    guarded.admin.alter_user_scram_credentials([changed])[user["sasl.username"]].result(30)
    password.write_text("another\n")
    rotation.follow_files()

    def refused() -> bool:
        time.sleep(2 * IDLE_S)  # so that the next call opens a connection
        followed.list_topics(timeout=30)
        try:
            left_alone.list_topics(timeout=1)
        except KafkaException:
            left_alone.poll(0)
        return any(client.is_not_let_in(error) for error in trouble)

    wait_until(refused, lambda: f"the broker refuses nobody: {trouble}", 120)
    time.sleep(2 * IDLE_S)
    followed.list_topics(timeout=30)
