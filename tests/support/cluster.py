"""Several brokers as one cluster on this machine: the first is also the controller, and is never stopped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient

from deploy.broker.broker import Broker
from deploy.broker.lifeline import HOST, free_port
from tests.support.waiting import wait_until


class Cluster:
    """`brokers`: by their ids less one. The topics of both coordinators have as many replicas as there are brokers."""

    def __init__(self, folder: Path, size: int, properties: Mapping[str, str] | None = None) -> None:
        """`properties`: of each broker."""
        of_all = {
            "offsets.topic.replication.factor": str(size),
            "transaction.state.log.replication.factor": str(size),
            **(properties or {}),
        }
        self.brokers = [Broker(folder / "broker-1", of_all)]
        voters = f"1@{HOST}:{self.brokers[0].controller_port}"
        for number in range(2, size + 1):
            port = free_port()
            listener = f"PLAINTEXT://{HOST}:{port}"
            own = {
                **of_all,
                "process.roles": "broker",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": listener,
                "advertised.listeners": listener,
            }
            self.brokers.append(Broker(folder / f"broker-{number}", own, port=port))

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": ",".join(broker.bootstrap for broker in self.brokers), "log_level": "0"}

    def await_in_sync(self, topic: str, count: int) -> None:
        """Wait until each partition of the topic has so many replicas in sync."""
        admin = AdminClient(self.kafka)

        def in_sync() -> set[int]:
            partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
            return {len(partition.isrs) for partition in partitions}

        wait_until(lambda: in_sync() == {count}, lambda: f"{topic} has {in_sync()} replicas in sync, not {count}")

    def __enter__(self) -> Self:
        try:
            for broker in self.brokers:
                broker.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for broker in reversed(self.brokers):
            broker.kill()
