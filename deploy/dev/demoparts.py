"""What the demos share: a console, how they end, a broker (their own, or that of BOOTSTRAP), and their topics."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from deploy.broker.broker import Broker
from deploy.errors import DeployError
from kafkaio import client
from kafkaio.errors import KafkaIOError
from kafkaio.reachable import wait_for_brokers

PARTITIONS = 4
INTERRUPTED = 130
ANSWERED_WITHIN_S = 2.5
"""Below the time after which `wait_for_brokers` logs a warning: the error says the same."""

console = Console()


def run_demo(demo: Callable[[], int]) -> int:
    """Runs a demo until it ends, or is stopped by Ctrl-C or SIGTERM; returns its exit code.

    A `DeployError` or `KafkaIOError` is reported without a traceback, and gives its exit code.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return demo()
    except KeyboardInterrupt:
        console.print("interrupted; everything is stopped")
        return INTERRUPTED
    except (DeployError, KafkaIOError) as error:
        console.print(str(error), style="bold red", highlight=False, markup=False, soft_wrap=True)
        return error.exit_code


def broker_at(stack: ExitStack) -> str:
    """Returns the broker's address. A broker of our own is stopped when the stack is closed.

    Raises `KafkaUnavailable` if no broker answers at BOOTSTRAP, and what `Broker.start` raises.
    """
    given = os.environ.get("BOOTSTRAP")
    if given:
        wait_for_brokers({"bootstrap.servers": given}, give_up_after_s=ANSWERED_WITHIN_S)
        return given
    with console.status("starting a broker (the first time its jars are fetched)"):
        broker = stack.enter_context(Broker())
    console.print(f"broker at {broker.bootstrap}")
    return broker.bootstrap


@contextmanager
def topics_of(
    kafka: dict[str, str], name: str, roles: Sequence[str], config: Mapping[str, str] | None = None
) -> Iterator[dict[str, str]]:
    """Creates topics and yields them by role; deletes them at the end. Raises `KafkaIOError`."""
    admin = client.admin(kafka)
    topics = {role: f"{name}-{role}" for role in roles}
    new = [NewTopic(topic, num_partitions=PARTITIONS, config=dict(config or {})) for topic in topics.values()]
    _await_all(admin.create_topics(new, request_timeout=30), "creation")
    try:
        yield topics
    finally:
        _await_all(admin.delete_topics(list(topics.values()), request_timeout=30), "deletion")


def _await_all(asked: Mapping[str, Future[None]], what: str) -> None:
    for topic, future in asked.items():
        try:
            future.result()
        except KafkaException as error:
            raise client.translate(error.args[0], what, topic) from error
