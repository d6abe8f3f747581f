"""`teacup delay` (collector and API) and `teacup offsets` (offsets of a time): arguments in, one call, text out.

Slow imports are left to the command that needs them, so that help appears at once.
"""

from __future__ import annotations

import logging
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import RootModel
from rich.console import Console
from rich.table import Table

from configfile.document import Document
from configfile.errors import SettingsInvalid
from configfile.values import Properties
from datadelay.errors import ConfigInvalid, DelayError, PositionsRefused
from kafkaio.errors import KafkaIOError
from kafkaio.exitcode import OF_COLLECTOR, ExitCode, listed
from kafkaio.now import wall_ms
from kafkaio.sparselog import Sparse
from kafkaio.times import iso, millis_of

if TYPE_CHECKING:
    from datadelay.offsets.rewriting import PositionPlan
    from datadelay.offsets.search import OffsetAt
    from datadelay.positions import WritablePositions
    from kafkaio.brokerlog import BrokerLog

delay_app = typer.Typer(help="How far has a consumer come in event time?", no_args_is_help=True)
offsets_app = typer.Typer(help="The offsets of a time, and setting a consumer to them.", no_args_is_help=True)


Topic = Annotated[str, typer.Option("--topic", help="the topic")]
Time = Annotated[str, typer.Option("--time", help="ISO 8601 with a zone, such as 2026-11-20T10:00Z")]
Bootstrap = Annotated[str, typer.Option("--bootstrap-servers", "-b", help="host:port,host:port")]
KafkaFile = Annotated[
    Path | None,
    typer.Option("--kafka-config", help="YAML of librdkafka properties; ${NAME} comes from the environment"),
]
PayloadTime = Annotated[str | None, typer.Option("--payload-time", help="JSON path of the time, such as $.event.time")]
Disorder = Annotated[
    int, typer.Option("--disorder-ms", min=0, help="how far below a time before it a record's time may lie")
]


class PastEnd(StrEnum):
    """What to set if no record reaches the time."""

    REFUSE = "refuse"
    END = "end"


@delay_app.command("collect", epilog="Exit codes:\n\n" + listed(OF_COLLECTOR))
def collect_command(
    config: Annotated[Path, typer.Argument(help="collector.yaml")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="one line per topic, not only for problems")] = False,
) -> None:
    """Look at every consumer and topic once, and submit their delays; made for cron."""
    from datadelay.collector.run import collect

    _log(logging.INFO if verbose else logging.WARNING)
    raise typer.Exit(collect(config))


@delay_app.command("serve")
def serve_command(config: Annotated[Path, typer.Argument(help="delay.yaml")]) -> None:
    """Serve the Data Delay API and its page until SIGTERM."""
    from datadelay.api.serve import DelayServeConfig, serve
    from deploy.check.servicefiles import check_service
    from httpapi.server.serving import end_by_signals, log_to_standard_error

    log_to_standard_error()
    end_by_signals()
    try:
        check_service(config)
        serve(DelayServeConfig.load(config))
    except (DelayError, SettingsInvalid) as error:
        raise _failed(error) from error


@offsets_app.command("at", short_help="Print each partition's offset at a time.")
def at_command(
    topic: Topic,
    time_text: Time,
    bootstrap_servers: Bootstrap = "",
    kafka_config: KafkaFile = None,
    payload_time: PayloadTime = None,
    disorder_ms: Disorder = 1_000,
) -> None:
    """Print each partition's offset at a time; past the end of a partition that is its end.
    Exit code 9 if the records around an answer contradict it. With --payload-time answers start --disorder-ms
    earlier, because a record may lie that far below a time before it.
    """
    _log(logging.WARNING)
    try:
        kafka = _kafka(bootstrap_servers, kafka_config)
        found = _look_up(topic, _time_ms(time_text), kafka, payload_time, disorder_ms)
    except (DelayError, SettingsInvalid, KafkaIOError) as error:
        raise _failed(error) from error
    Console(width=120).print(_found_table(topic, found))
    if not all(one.verified for one in found):
        raise typer.Exit(ExitCode.UNKNOWN)


@offsets_app.command("set")
def set_command(
    topic: Annotated[str | None, typer.Option("--topic", help="the topic; with --undo, its file names it")] = None,
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
            help="if no record reaches the time, or none has one: refuse, or end, which sets such a "
            "partition to its end",
        ),
    ] = PastEnd.REFUSE,
    save_undo: Annotated[
        Path | None, typer.Option("--save-undo", help="default: offsets-undo-TOPIC-NOW.json here")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="write; without it nothing is written")] = False,
    bootstrap_servers: Bootstrap = "",
    kafka_config: KafkaFile = None,
    payload_time: PayloadTime = None,
    disorder_ms: Disorder = 1_000,
) -> None:
    """Set a stopped consumer to a time, or back by an undo file. Shows old and new; writes only with --apply."""
    from datadelay.offsets.rewriting import apply_plan

    _log(logging.WARNING)
    try:
        kafka = _kafka(bootstrap_servers, kafka_config)
        positions = _positions(group, zookeeper, root, consumer_id, topic_folders, kafka)
        try:
            wanted = _wanted(positions, topic, time_text, undo_path, past_end, kafka, payload_time, disorder_ms)
            typer.echo(f"{wanted.topic} of {', '.join(f'{key} {value}' for key, value in wanted.target.items())}")
            Console(width=120).print(_plan_table(wanted))
            if not apply:
                typer.echo("nothing was written; --apply writes it")
                return
            now_ms = wall_ms()
            saved = save_undo or Path(f"offsets-undo-{wanted.topic}-{now_ms}.json")
            apply_plan(wanted, positions, saved, now_ms)
        finally:
            positions.close()
    except (DelayError, SettingsInvalid, KafkaIOError) as error:
        raise _failed(error) from error
    typer.echo(f"written; `teacup offsets set --undo {saved} ...` puts the old offsets back")


def _log(level: int) -> None:
    """Log each line of a library once: cron mails the output, and an unreachable broker would fill the screen."""
    handler, once = logging.StreamHandler(), Sparse(period_s=math.inf)
    ours = logging.Filter(logging.getLogger("teacup.datadelay").name)
    handler.addFilter(lambda record: ours.filter(record) or once.filter(record))
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s", handlers=[handler])


def _wanted(
    positions: WritablePositions,
    topic: str | None,
    time_text: str | None,
    undo_path: Path | None,
    past_end: PastEnd,
    kafka: dict[str, str],
    payload_time: str | None,
    disorder_ms: int,
) -> PositionPlan:
    from datadelay.offsets.rewriting import plan, undo, undo_topic
    from datadelay.offsets.search import OffsetKind

    if undo_path is not None:
        if topic is not None or time_text is not None:
            raise ConfigInvalid("--undo takes topic and offsets from its file: leave --topic and --time out")
        log = _open_log(undo_topic(undo_path), kafka, None)
        try:
            back, left = undo(undo_path, positions, log.ends())
        finally:
            log.close()
        for one in left:
            typer.echo(f"partition {one.partition} had no position before; it keeps {one.new}", err=True)
        return back
    if topic is None or time_text is None:
        raise ConfigInvalid("--topic and --time are missing; or give --undo FILE")
    found = _look_up(topic, _time_ms(time_text), kafka, payload_time, disorder_ms)
    wrong = [one.partition for one in found if not one.verified]
    if wrong:
        raise PositionsRefused(
            f"the records around the offsets of partitions {wrong} contradict them; look at `teacup offsets at`"
        )
    beyond = [one.partition for one in found if one.found is OffsetKind.PAST_END]
    timeless = [one.partition for one in found if one.found is OffsetKind.NO_TIME]
    if timeless and past_end is PastEnd.REFUSE:
        where = "" if payload_time is None else f" at {payload_time!r}: is --payload-time right?"
        raise ConfigInvalid(
            f"no record of partitions {timeless} has a time{where or '.'} --past-end end sets them to their end"
        )
    if beyond and past_end is PastEnd.REFUSE:
        raise ConfigInvalid(
            f"no record of partitions {beyond} reaches {time_text}; --past-end end sets them to their end"
        )
    return plan(
        positions, topic, {one.partition: one.offset for one in found}, {one.partition: one.ends for one in found}
    )


def _look_up(
    topic: str, time_ms: int, kafka: dict[str, str], payload_time: str | None, disorder_ms: int
) -> tuple[OffsetAt, ...]:
    from datadelay.offsets.search import offsets_at

    log = _open_log(topic, kafka, payload_time)
    try:
        return offsets_at(
            log,
            time_ms,
            now_ms=wall_ms(),
            disorder_ms=disorder_ms,
            progress=lambda line: typer.echo(line, err=True),
        )
    finally:
        log.close()


def _open_log(topic: str, kafka: dict[str, str], payload_time: str | None) -> BrokerLog:
    from kafkaio.brokerlog import BrokerLog
    from kafkaio.eventtime import KAFKA, TimeOf

    return BrokerLog(topic, kafka, TimeOf(payload_time or KAFKA))


def _positions(
    group: str | None,
    zookeeper: str | None,
    root: str,
    consumer_id: str | None,
    topic_folders: bool,
    kafka: dict[str, str],
) -> WritablePositions:
    if (group is None) == (zookeeper is None):
        raise ConfigInvalid("give either --group, or --zookeeper with --root and --consumer-id")
    if group is not None:
        from datadelay.positions.group import ConsumerGroup

        return ConsumerGroup(group, kafka)
    if consumer_id is None or zookeeper is None:
        raise ConfigInvalid("--consumer-id is missing; it is the spout's id, the node below --root")
    if not root.startswith("/"):
        raise ConfigInvalid(f"--root {root!r} is not a path in ZooKeeper: it must begin with /")
    from datadelay.positions.zookeeper import SpoutPositions

    return SpoutPositions(zookeeper, root, consumer_id, topic_folders=topic_folders)


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


def _found_table(topic: str, found: tuple[OffsetAt, ...]) -> Table:
    table = Table(title=topic)
    for name in ("partition", "offset", "what", "newest before", "first from there on", "verified"):
        table.add_column(name, justify="right")
    for one in found:
        verified = "yes" if one.verified else "NO"
        table.add_row(
            str(one.partition), str(one.offset), one.found, _shown(one.before_ms), _shown(one.at_ms), verified
        )
    return table


def _plan_table(wanted: PositionPlan) -> Table:
    table = Table()
    for name in ("partition", "old", "new", "moves by"):
        table.add_column(name, justify="right")
    for one in wanted.changes:
        old, moves = ("-", "-") if one.old is None else (str(one.old), f"{one.new - one.old:+d}")
        table.add_row(str(one.partition), old, str(one.new), moves)
    return table


def _failed(error: DelayError | SettingsInvalid | KafkaIOError) -> typer.Exit:
    typer.echo(f"{error}", err=True)
    return typer.Exit(error.exit_code)
