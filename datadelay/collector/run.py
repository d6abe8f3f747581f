"""One run of the collector, made for cron: look at every consumer and topic, submit, exit with a code.

    0   every topic has a value
    2   the configuration is wrong, or `api.url` leads to another API; nothing was submitted
    4   the Data Delay API is unreachable, or refuses some topic: readers see `stale` after a while
    9   some topic is unknown; its reason was submitted and logged
    10  another run holds the lock; nothing was done
    11  the deadline passed; topics not done by then were submitted as unknown
    12  brokers refuse access to some topic or group; its reason names the ACLs that the collector needs for it

Several threads look at topics, because most of the time is spent waiting. Only the main thread submits, so a thread
that hangs in a call beyond the deadline can do no harm (the threads are daemons). The last part of the deadline is
reserved for submitting: whatever happens to Kafka, the API is informed.
"""

from __future__ import annotations

import fcntl
import logging
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import requests

from datadelay.client import DelayClient
from datadelay.collector.config import (
    CheckpointSettings,
    CollectorConfig,
    ConsumerSettings,
    GroupSettings,
    StoreSettings,
    TopicSettings,
)
from datadelay.collector.observe import Observation, observe
from datadelay.collector.reports import failed_submission, submission
from datadelay.errors import (
    ConfigInvalid,
    DelayAccessDenied,
    DelayCallFailed,
    DelayError,
    DelayNotFound,
    DelayWrongServer,
    PositionsUnreadable,
    SubmissionInvalid,
    SubmissionLate,
)
from datadelay.model import Delay, DelayState, Submission
from datadelay.positions import Positions
from datadelay.positions.checkpoint import SparkCheckpoint
from datadelay.positions.group import ConsumerGroup
from teacup.base.errors import ExitCode, SettingsInvalid
from teacup.base.now import wall_ms
from teacup.base.times import iso
from teacup.http.client.transport import cause
from teacup.kafka.errors import AccessRefused, KafkaIOError, NotLetIn
from teacup.kafka.grants import Grant, commands
from teacup.kafka.log.broker_log import BrokerLog

logger = logging.getLogger("teacup.datadelay.collector.run")

SUBMIT_RESERVE_S = 10.0
_STORE_TIMEOUT_S = (2.0, 5.0)


def collect(path: Path) -> int:
    """Runs once as configured by `path` (YAML); returns an `ExitCode`. All failures are logged."""
    try:
        config = CollectorConfig.load(path)
        with _locked(config.lock_file) as locked:
            if not locked:
                logger.error("%s is locked: the previous run has not ended; nothing was done", config.lock_file)
                return ExitCode.LOCKED
            return run(config)
    except (ConfigInvalid, SettingsInvalid) as error:
        logger.error("%s", error)
        return ExitCode.BAD_JOB_FILE


@dataclass(frozen=True, slots=True)
class Task:
    """A consumer in a topic, to be looked at."""

    consumer: ConsumerSettings
    topic: TopicSettings
    positions: Positions

    @property
    def name(self) -> str:
        """The name in log lines: CONSUMER/TOPIC."""
        return f"{self.consumer.consumer}/{self.topic.topic}"


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The result of a task: a submission, or why there is none. code: for a failure."""

    task: Task
    submission: Submission | None
    failure: str | None = None
    code: ExitCode = ExitCode.UNKNOWN


def run(config: CollectorConfig) -> ExitCode:
    """Collects and submits. Raises `ConfigInvalid` before anything is read."""
    started, begun_ms = time.monotonic(), wall_ms()
    observe_until = started + config.deadline_s - min(SUBMIT_RESERVE_S, config.deadline_s / 2)
    tasks = _tasks(config)
    waiting = {task.name: task for task in tasks}
    codes = {ExitCode.DONE}
    with DelayClient(
        config.api.url, config.api.token, retries=1, read_timeout_s=3.0, verify=config.api.ca_bundle or True
    ) as api:
        outcomes = _start(config, tasks)
        try:
            while waiting:
                try:
                    outcome = outcomes.get(timeout=max(0.0, observe_until - time.monotonic()))
                except queue.Empty:
                    break
                codes |= {_submit(api, outcome, begun_ms), *(() if outcome.failure is None else (outcome.code,))}
                del waiting[outcome.task.name]
            for task in waiting.values():
                late = TaskOutcome(task, None, _too_late(task, config))
                codes |= {ExitCode.DEADLINE, _submit(api, late, begun_ms)}
        except DelayWrongServer as error:
            logger.error("%s; correct `api.url`. Not submitted: %s", error, ", ".join(waiting))
            return ExitCode.BAD_JOB_FILE
        except DelayCallFailed as error:
            logger.error("%s. Not submitted: %s", error, ", ".join(waiting))
            return ExitCode.UNREACHABLE
    if not waiting:
        for positions in {id(task.positions): task.positions for task in tasks}.values():
            positions.close()
    return ExitCode.UNREACHABLE if ExitCode.UNREACHABLE in codes else max(codes)


def _too_late(task: Task, config: CollectorConfig) -> str:
    brokers = config.kafka_of(task.consumer).get("bootstrap.servers", "its brokers")
    where = f"where the positions are kept ({task.consumer.positions.kind})"
    return (
        f"Kafka at {brokers}, or {where}, is slow or unreachable: "
        f"not done within the collector's deadline of {config.deadline_s:g} s"
    )


def open_positions(consumer: ConsumerSettings, config: CollectorConfig) -> Positions:
    """Returns the positions that the settings name; connects on the first read. Raises `ConfigInvalid`."""
    settings = consumer.positions
    if isinstance(settings, GroupSettings):
        try:
            return ConsumerGroup(settings.group, config.kafka_of(consumer))
        except KafkaIOError as error:
            raise ConfigInvalid(f"kafka of consumer {consumer.consumer!r}: {error}") from error
    if isinstance(settings, CheckpointSettings):
        return SparkCheckpoint(settings.location, settings.storage_options)
    try:
        from datadelay.positions.zookeeper import SpoutPositions
    except ModuleNotFoundError as error:
        raise ConfigInvalid(
            f"positions of consumer {consumer.consumer!r}: {error}; install 'teacup-joins[serve]' for ZooKeeper"
        ) from error
    return SpoutPositions(
        settings.hosts,
        settings.root,
        settings.consumer_id,
        topic_folders=settings.topic_folders,
        timeout_s=settings.timeout_s,
    )


def _tasks(config: CollectorConfig) -> list[Task]:
    tasks: list[Task] = []
    for consumer in config.consumers:
        positions = open_positions(consumer, config)
        tasks += [Task(consumer, topic, positions) for topic in consumer.topics]
    return tasks


def _start(config: CollectorConfig, tasks: list[Task]) -> queue.SimpleQueue[TaskOutcome]:
    """Starts threads that put one outcome per task."""
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    done: queue.SimpleQueue[TaskOutcome] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)

    def work() -> None:
        while True:
            try:
                task = todo.get_nowait()
            except queue.Empty:
                return
            done.put(_outcome_of(task, config))

    for number in range(min(config.parallel, len(tasks))):
        threading.Thread(target=work, name=f"collector-{number}", daemon=True).start()
    return done


def _outcome_of(task: Task, config: CollectorConfig) -> TaskOutcome:
    """Observes a topic. Every failure becomes an outcome, so that every topic has one."""
    try:
        store_generation = _store_generation(task.consumer.store)
        seen = _observe(task, config)
        submitted = submission(
            consumer=task.consumer.consumer,
            topic=task.topic.topic,
            listed_ms=seen.listed_ms,
            generation=seen.generation,
            store_generation=seen.store_generation or store_generation,  # prefers what was fed to what answers now
            partitions=seen.partitions,
            rules=task.topic.rules,
        )
    except NotLetIn as error:
        return TaskOutcome(task, None, str(error), error.exit_code)
    except AccessRefused as error:
        return TaskOutcome(task, None, f"{error}. {_needed(task, config)}", error.exit_code)
    except (KafkaIOError, DelayError) as error:
        return TaskOutcome(task, None, str(error))
    except Exception as error:
        logger.exception("%s: unexpected error", task.name)
        return TaskOutcome(task, None, f"{type(error).__name__}: {error}")
    return TaskOutcome(task, submitted)


def _needed(task: Task, config: CollectorConfig) -> str:
    """Returns the grants needed to observe a topic, as text."""
    grants, kafka = [Grant("topic", task.topic.topic, ("Read",))], config.kafka_of(task.consumer)
    if isinstance(task.consumer.positions, GroupSettings):
        grants.append(Grant("group", task.consumer.positions.group, ("Describe",)))
    return f"The collector needs {'; '.join(map(str, grants))}: {' && '.join(commands(grants, kafka))}"


def _observe(task: Task, config: CollectorConfig) -> Observation:
    kafka, time_of, rules = config.kafka_of(task.consumer), task.topic.time_of, task.topic.rules
    name, skew_ms = task.topic.topic, rules.max_future_skew_ms
    with closing(BrokerLog(name, kafka, time_of, outliers=rules.outliers, max_future_skew_ms=skew_ms)) as log:
        return observe(log, task.positions, rules, wall_ms)


def _store_generation(store: StoreSettings | None) -> str | None:
    """Returns the store's generation. It is read before the positions: if the store is wiped in between, the next
    run shows it; otherwise no run would.
    """
    if store is None:
        return None
    headers = {} if store.token is None else {"Authorization": f"Bearer {store.token}"}
    try:
        answer = requests.get(str(store.url), headers=headers, timeout=_STORE_TIMEOUT_S, verify=store.ca_bundle or True)
        answer.raise_for_status()
        return str(answer.json()[store.key])
    except (requests.RequestException, KeyError, TypeError) as error:
        why = f"expected a JSON object with {store.key!r}"
        if isinstance(error, requests.RequestException) and not isinstance(error, ValueError):
            why = cause(error, str(store.url), _STORE_TIMEOUT_S)
        raise PositionsUnreadable(f"generation of the store at {store.url}: {why}") from error


def _submit(api: DelayClient, outcome: TaskOutcome, begun_ms: int) -> ExitCode:
    """Submits one topic and logs what readers now see, or a refusal that concerns this topic alone.

    Raises `DelayCallFailed` for anything else, as no other topic would fare better.
    """
    task = outcome.task
    try:
        delay = api.submit(outcome.submission or _failure(api, outcome, begun_ms))
    except DelayAccessDenied as error:
        logger.error("%s; correct `api.token`. Not submitted: %s", error, task.name)
        return ExitCode.UNREACHABLE
    except (SubmissionInvalid, SubmissionLate) as error:
        logger.error("%s. Not submitted: %s", error, task.name)
        return ExitCode.UNREACHABLE
    if delay.state is DelayState.UNKNOWN or delay.consumed_until_ms is None:
        logger.warning("%s: unknown: %s", task.name, delay.reason)
        return ExitCode.UNKNOWN
    logger.info("%s: %s, consumed until %s", task.name, delay.state, iso(delay.consumed_until_ms))
    return ExitCode.DONE


def _failure(api: DelayClient, outcome: TaskOutcome, begun_ms: int) -> Submission:
    consumer, topic = outcome.task.consumer.consumer, outcome.task.topic.topic
    before: Delay | None
    try:
        before = api.read(consumer, topic, partitions=True)
    except DelayNotFound:
        before = None
    return failed_submission(
        consumer=consumer, topic=topic, listed_ms=begun_ms, reason=outcome.failure or "", before=before
    )


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Yields whether this process got the lock. The system releases it when the process ends, for whatever reason."""
    try:
        file = path.open("a")
    except OSError as error:
        raise ConfigInvalid(f"lock_file {path} cannot be opened: {error}; name one in a folder that exists") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
