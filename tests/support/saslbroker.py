"""A development broker with one more listener, on which clients log in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.dev.broker.broker import Broker
from deploy.dev.broker.lifeline import free_port


def sasl_broker(
    folder: Path, protocol: str, password: str, properties: Mapping[str, str]
) -> tuple[Broker, dict[str, str]]:
    """The broker, not started yet, and the properties for the user `teacup`; the plain listener needs no login.

    protocol   SASL_PLAINTEXT or SASL_SSL
    """
    port = free_port()
    Broker(folder)  # chooses the ports
    plain, controller = (folder / "ports").read_text().split()
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker = Broker(
        folder,
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SAFE://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SAFE://127.0.0.1:{port}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SAFE:{protocol}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": f'{login} user_teacup="{password}";',
            **properties,
        },
    )
    return broker, {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": protocol,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "teacup",
        "sasl.password": password,
    }
