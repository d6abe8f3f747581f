"""What the demos share: a console, a broker (their own, or that of BOOTSTRAP), topics that are deleted at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from deploy.dev.broker import Broker
from kafkaio import client

PARTITIONS = 4

console = Console()


def broker_at(stack: ExitStack) -> str:
    """The broker's address; a broker of our own is stopped when the stack is closed."""
    given = os.environ.get("BOOTSTRAP")
    if given:
        return given
    with console.status("starting a broker (the first time its jars are fetched)"):
        broker = stack.enter_context(Broker())
    console.print(f"broker at {broker.bootstrap}")
    return broker.bootstrap


@contextmanager
def topics_of(
    kafka: dict[str, str], name: str, roles: Sequence[str], config: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """New topics by role, deleted at the end."""
    admin = client.admin(kafka)
    topics = {role: f"{name}-{role}" for role in roles}
    new = [NewTopic(topic, num_partitions=PARTITIONS, config=dict(config or {})) for topic in topics.values()]
    for future in admin.create_topics(new).values():
        future.result(30)
    try:
        yield topics
    finally:
        for future in admin.delete_topics(list(topics.values())).values():
            future.result(30)
