"""What the development broker's `server.properties` say."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deploy.broker.ports import HOST

# One node holds every replica; the rest shortens a developer's waits.
_DEFAULTS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,FORWARDED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "100",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",  # a killed broker cannot come back before that
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "log.initial.task.delay.ms": "1000",
    "log.retention.ms": "-1",  # event times of tests and demos lie in the past; a topic may set its own
    "log.retention.check.interval.ms": "10000",
}


def server_settings(data: Path, port: int, controller_port: int, forwarded: tuple[int, int] | None) -> dict[str, str]:
    """Returns all settings of a broker whose log is in the folder `data`.

    forwarded   a port where it also listens, and the port that clients are referred to there; None: there is none
    """
    listeners = {"PLAINTEXT": port, "CONTROLLER": controller_port}
    advertised = {"PLAINTEXT": port}
    if forwarded is not None:
        listeners["FORWARDED"], advertised["FORWARDED"] = forwarded
    return {
        **_DEFAULTS,
        "listeners": _comma(listeners),
        "advertised.listeners": _comma(advertised),
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": str(data),
    }


def _comma(listeners: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items())
