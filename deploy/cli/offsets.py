"""`teacup offsets`: the offsets of a time, and setting a consumer to them. Slow imports are left to the commands."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import RootModel
from rich.console import Console
from rich.table import Table

from datadelay.errors import ConfigInvalid, PositionsRefused
from deploy.cli.commands import log_to_stderr, reported
from teacup.base.config.document import Document
from teacup.base.config.keys import Properties
from teacup.base.errors import ExitCode
from teacup.base.now import wall_ms
from teacup.base.times import DISORDER_MS, iso, millis_of

if TYPE_CHECKING:
    from datadelay.offsets import OffsetAt, PositionPlan
    from datadelay.positions import WritablePositions
    from teacup.kafka.log.broker_log import BrokerLog

offsets_app = typer.Typer(help="The offsets of a time, and setting a consumer to them.", no_args_is_help=True)


Topic = Annotated[str, typer.Option("--topic", help="the topic")]
Time = Annotated[str, typer.Option("--time", help="ISO 8601 with a zone, such as 2026-11-20T10:00Z")]
Bootstrap = Annotated[str, typer.Option("--bootstrap-servers", "-b", help="host:port,host:port")]
KafkaFile = Annotated[
    Path | None,
    typer.Option("--kafka-config", help="YAML of librdkafka properties; ${NAME} comes from the environment"),
]
PayloadTime = Annotated[
    str | None, typer.Option("--payload-time", help="JSON path of the time, such as $.event.time, or header:NAME")
]
Disorder = Annotated[
    int, typer.Option("--disorder-ms", min=0, help="how far a record's time may lie below an earlier one's")
]


class PastEnd(StrEnum):
    """What to do if no record reaches the time."""

    REFUSE = "refuse"
    END = "end"


@offsets_app.command("at", short_help="Print each partition's offset at a time.")
def at_command(
    topic: Topic,
    time_text: Time,
    bootstrap_servers: Bootstrap = "",
    kafka_config: KafkaFile = None,
    payload_time: PayloadTime = None,
    disorder_ms: Disorder = DISORDER_MS,
) -> None:
    """Print each partition's offset at a time; its end if no record reaches the time.
    Exit code 9 if the records around an answer contradict it. With --payload-time answers start --disorder-ms
    earlier, because a record may lie that far below a time before it.
    """
    from deploy.check.access import naming_all_lacks
    from deploy.check.uses import to_set_offsets

    log_to_stderr(logging.WARNING)
    with reported():
        search = Search(_kafka(bootstrap_servers, kafka_config), payload_time, disorder_ms)
        with naming_all_lacks(lambda: to_set_offsets(topic, search.kafka)):
            at_time = search.offsets_at(topic, time_text)
    Console(width=120).print(_offsets_table(topic, at_time))
    if not all(offset.verified for offset in at_time):
        raise typer.Exit(ExitCode.UNKNOWN)


@offsets_app.command("set")
def set_command(
    topic: Annotated[
        str | None, typer.Option("--topic", help="the topic; not with --undo, whose file names it")
    ] = None,
    time_text: Annotated[
        str | None, typer.Option("--time", help="ISO 8601 with a zone, such as 2026-11-20T10:00Z")
    ] = None,
    undo_path: Annotated[Path | None, typer.Option("--undo", help="restore the positions in this undo file")] = None,
    group: Annotated[str | None, typer.Option("--group", help="a Kafka consumer group")] = None,
    zookeeper: Annotated[
        str | None, typer.Option("--zookeeper", help="ZooKeeper of a Storm spout: host:port, or host:port/chroot")
    ] = None,
    root: Annotated[str, typer.Option("--root", help="the spout's root in ZooKeeper")] = "/",
    consumer_id: Annotated[str | None, typer.Option("--consumer-id", help="the spout's id below the root")] = None,
    topic_folders: Annotated[
        bool, typer.Option("--topic-folders", help="the spout has a folder for each topic")
    ] = False,
    past_end: Annotated[
        PastEnd,
        typer.Option(
            "--past-end",
            help="for a partition in which no record reaches the time, or has one: refuse, or set it to its end",
        ),
    ] = PastEnd.REFUSE,
    save_undo: Annotated[
        Path | None,
        typer.Option("--save-undo", help="the undo file (default: offsets-undo-TOPIC-NOW.json in this folder)"),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="write; without it nothing is written")] = False,
    bootstrap_servers: Bootstrap = "",
    kafka_config: KafkaFile = None,
    payload_time: PayloadTime = None,
    disorder_ms: Disorder = DISORDER_MS,
) -> None:
    """Set a stopped consumer to a time, or back to an undo file's positions. Writes only with --apply."""
    from deploy.check.access import naming_all_lacks
    from deploy.check.uses import to_set_offsets

    log_to_stderr(logging.WARNING)
    goal = Goal(topic, time_text, undo_path, past_end)
    consumer = PositionsOwner(group, zookeeper, root, consumer_id, topic_folders)
    with reported():
        search = Search(_kafka(bootstrap_servers, kafka_config), payload_time, disorder_ms)
        with naming_all_lacks(lambda: to_set_offsets(goal.named(), search.kafka, group)):
            saved = _set(consumer, goal, search, save_undo, apply=apply)
    if saved is not None:
        typer.echo(f"written; `teacup offsets set --undo {saved} ...` puts the old offsets back")


@dataclass(frozen=True, slots=True)
class Search:
    """How the offsets of a time are looked up.

    payload_time  JSON path of the time; None: Kafka's timestamp
    """

    kafka: dict[str, str]
    payload_time: str | None
    disorder_ms: int

    def offsets_at(self, topic: str, time_text: str) -> tuple[OffsetAt, ...]:
        """Looks up the offset of a time in each partition; progress is printed on standard error."""
        from datadelay.offsets import offsets_at

        time_ms = _time_ms(time_text)
        log = _open_log(topic, self.kafka, self.payload_time)
        try:
            return offsets_at(
                log,
                time_ms,
                now_ms=wall_ms(),
                disorder_ms=self.disorder_ms,
                progress=lambda line: typer.echo(line, err=True),
            )
        finally:
            log.close()


@dataclass(frozen=True, slots=True)
class PositionsOwner:
    """The consumer whose positions are set: a consumer group or a Storm spout."""

    group: str | None
    zookeeper: str | None
    root: str
    consumer_id: str | None
    topic_folders: bool

    def positions(self, kafka: dict[str, str]) -> WritablePositions:
        """Opens the positions. Raises `ConfigInvalid` if the options do not name exactly one consumer."""
        if (self.group is None) == (self.zookeeper is None):
            raise ConfigInvalid("give either --group, or --zookeeper with --root and --consumer-id")
        if self.group is not None:
            from datadelay.positions.group import ConsumerGroup

            return ConsumerGroup(self.group, kafka)
        if self.consumer_id is None or self.zookeeper is None:
            raise ConfigInvalid("--consumer-id is missing; it is the spout's id, the node below --root")
        if not self.root.startswith("/"):
            raise ConfigInvalid(f"--root {self.root!r} is not a path in ZooKeeper: it must begin with /")
        from datadelay.positions.zookeeper import SpoutPositions

        return SpoutPositions(self.zookeeper, self.root, self.consumer_id, topic_folders=self.topic_folders)


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a consumer is set: a time of a topic, or the positions in an undo file."""

    topic: str | None
    time_text: str | None
    undo_path: Path | None
    past_end: PastEnd

    def named(self) -> str:
        """Returns the topic's name. Raises `ConfigInvalid` for an undo file without one."""
        from datadelay.offsets import undo_topic

        return undo_topic(self.undo_path) if self.undo_path is not None else self.topic or ""

    def plan(self, positions: WritablePositions, search: Search) -> PositionPlan:
        """Plans the change. Raises `ConfigInvalid` for options that contradict each other, `PositionsRefused`."""
        if self.undo_path is not None:
            if self.topic is not None or self.time_text is not None:
                raise ConfigInvalid("--undo takes topic and offsets from its file: leave --topic and --time out")
            return _plan_of_undo(self.undo_path, positions, search.kafka)
        if self.topic is None or self.time_text is None:
            raise ConfigInvalid("--topic and --time are missing; or give --undo FILE")
        from datadelay.offsets import plan

        at_time = search.offsets_at(self.topic, self.time_text)
        self._check(at_time, self.time_text, search.payload_time)
        offsets = {offset.partition: offset.offset for offset in at_time}
        return plan(positions, self.topic, offsets, {offset.partition: offset.ends for offset in at_time})

    def _check(self, at_time: tuple[OffsetAt, ...], time_text: str, payload_time: str | None) -> None:
        """Raises for offsets that their records contradict, and for those past the end unless `--past-end end`."""
        from datadelay.offsets import OffsetKind

        wrong = [offset.partition for offset in at_time if not offset.verified]
        if wrong:
            raise PositionsRefused(
                f"the records around the offsets of partitions {wrong} contradict them; look at `teacup offsets at`"
            )
        if self.past_end is not PastEnd.REFUSE:
            return
        timeless = [offset.partition for offset in at_time if offset.kind is OffsetKind.NO_TIME]
        if timeless:
            where = "" if payload_time is None else f" at {payload_time!r}: is --payload-time right?"
            raise ConfigInvalid(
                f"no record of partitions {timeless} has a time{where or '.'} --past-end end sets them to their end"
            )
        beyond = [offset.partition for offset in at_time if offset.kind is OffsetKind.PAST_END]
        if beyond:
            raise ConfigInvalid(
                f"no record of partitions {beyond} reaches {time_text}; --past-end end sets them to their end"
            )


def _set(consumer: PositionsOwner, goal: Goal, search: Search, save_undo: Path | None, *, apply: bool) -> Path | None:
    """Shows the change, and makes it if `apply`; returns the undo file, None if nothing was written."""
    from datadelay.offsets import apply_plan

    positions = consumer.positions(search.kafka)
    try:
        plan = goal.plan(positions, search)
        typer.echo(f"{plan.topic} of {', '.join(f'{key} {value}' for key, value in plan.target.items())}")
        Console(width=120).print(_plan_table(plan))
        if not apply:
            typer.echo("nothing was written; --apply writes it")
            return None
        now_ms = wall_ms()
        saved = save_undo or Path(f"offsets-undo-{plan.topic}-{now_ms}.json")
        apply_plan(plan, positions, saved, now_ms)
        return saved
    finally:
        positions.close()


def _plan_of_undo(path: Path, positions: WritablePositions, kafka: dict[str, str]) -> PositionPlan:
    from datadelay.offsets import undo, undo_topic

    log = _open_log(undo_topic(path), kafka, None)
    try:
        back, without_old = undo(path, positions, log.ends())
    finally:
        log.close()
    for change in without_old:
        typer.echo(f"partition {change.partition} had no position before; it keeps {change.new}", err=True)
    return back


def _open_log(topic: str, kafka: dict[str, str], payload_time: str | None) -> BrokerLog:
    from teacup.kafka.log.broker_log import BrokerLog
    from teacup.kafka.records.record import KAFKA, TimeOf

    return BrokerLog(topic, kafka, TimeOf(payload_time or KAFKA))


def _kafka(bootstrap_servers: str, kafka_config: Path | None) -> dict[str, str]:
    given = {} if kafka_config is None else Document.read(kafka_config).as_model(RootModel[Properties]).root
    return given | ({"bootstrap.servers": bootstrap_servers} if bootstrap_servers else {})


def _time_ms(text: str) -> int:
    try:
        return millis_of(text)
    except ValueError as error:
        raise ConfigInvalid(f"--time {text!r} is not allowed: {error}; write it as 2026-11-20T10:00Z") from error


def _shown(time_ms: int | None) -> str:
    return "-" if time_ms is None else iso(time_ms)


def _offsets_table(topic: str, at_time: tuple[OffsetAt, ...]) -> Table:
    table = Table(title=topic)
    for name in ("partition", "offset", "what", "newest before", "first from there on", "verified"):
        table.add_column(name, justify="right")
    for offset in at_time:
        verified = "yes" if offset.verified else "NO"
        before, at = _shown(offset.before_ms), _shown(offset.at_ms)
        table.add_row(str(offset.partition), str(offset.offset), offset.kind, before, at, verified)
    return table


def _plan_table(plan: PositionPlan) -> Table:
    table = Table()
    for name in ("partition", "old", "new", "moves by"):
        table.add_column(name, justify="right")
    for change in plan.changes:
        old, moves = ("-", "-") if change.old is None else (str(change.old), f"{change.new - change.old:+d}")
        table.add_row(str(change.partition), old, str(change.new), moves)
    return table
