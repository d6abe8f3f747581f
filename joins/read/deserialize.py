"""Decodes the records of a side: values that name their schema become JSON text when they are read.

All other modules see JSON. A value that cannot be decoded stays as it is, with the reason beside it. The bytes of the
others are kept in an extra column, so that records can be given back, or copied as they were read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from joins.read.parse import JSON_KEY, RAW, UNREADABLE
from joins.spec import Format, Side
from teacup.base.logs import sparse
from teacup.kafka.headers import INVALID_AVRO, INVALID_PROTOBUF
from teacup.kafka.read.range_reader import RangeReader, Span, open_reader
from teacup.kafka.records.json_fields import first_name

log = sparse("teacup.joins.read.deserialize")

UNREACHABLE_FOR_S = 300.0
"""How long tasks wait for the registry. Planners do not wait: they hold, and say why."""
PAUSE_S = 0.5

_INVALID = {Format.AVRO: INVALID_AVRO, Format.PROTOBUF: INVALID_PROTOBUF}

Decode = Callable[[pa.RecordBatch], pa.RecordBatch]


class SideReader:
    """Reads ranges (`teacup.kafka.read.range_reader`) of one side's topic.

    name   of the side, as both may read one topic, at different offsets
    """

    def __init__(self, side: Side, kafka: Mapping[str, str], registry: Mapping[str, str], name: str = "") -> None:
        self._topic, self._kafka, self._name = side.topic, kafka, name
        self._decode = decoder(side, registry, UNREACHABLE_FOR_S)

    @property
    def _reader(self) -> RangeReader:
        return open_reader(self._topic, self._kafka, self._name)

    def prepare(self, ranges: Mapping[int, Span]) -> None:
        """As in `RangeReader`."""
        self._reader.prepare(ranges)

    def read(self, partition: int, start: int, end: int, chunk: int = 100_000) -> Generator[pa.RecordBatch, None, None]:
        """As in `RangeReader`, with values as JSON; also raises `RegistryUnreachable`, `RegistryRefused`."""
        records = self._reader.read(partition, start, end, chunk)
        return records if self._decode is None else _decoded(records, self._decode)

    def give_back(self, partition: int, records: list[pa.RecordBatch]) -> None:
        """As in `RangeReader`."""
        self._reader.give_back(partition, [as_read(batch) for batch in records])


def decoder(side: Side, registry: Mapping[str, str], unreachable_for_s: float = 0) -> Decode | None:
    """Returns what converts a batch of the side to JSON; None if its values are used as they are.

    unreachable_for_s   how long to wait for the registry before `RegistryUnreachable`
    """
    if not side.format.framed:
        return None
    in_key = json_values(side, registry, None, unreachable_for_s) if side.key_of.inside else None
    return partial(
        _with_json, json_values=json_values(side, registry, needed(side), unreachable_for_s), json_keys=in_key
    )


def expect_schemas(side: Side, registry: Mapping[str, str], numbers: Iterable[int]) -> None:
    """Makes sure that schemas that other tasks have used are known here, whatever this process found before.

    Otherwise a record could be a dead letter here, and take part where it is read again.
    """
    expected = list(numbers)
    if expected and side.format.framed:
        from teacup.kafka.records.registry import open_registry

        open_registry(registry, side.format, UNREACHABLE_FOR_S).expect(expected)


def json_values(
    side: Side, registry: Mapping[str, str], columns: tuple[str, ...] | None, unreachable_for_s: float = 0
) -> Callable[[pa.Array], tuple[pa.Array, pa.Array]]:
    """Returns what converts values (binary) to JSON text, or says why it cannot; columns: as in
    `teacup.kafka.records.framed`."""

    def decode(values: pa.Array) -> tuple[pa.Array, pa.Array]:
        from teacup.kafka.records.framed import json_of  # these need an extra
        from teacup.kafka.records.registry import open_registry

        schemas = open_registry(registry, side.format, unreachable_for_s)
        return json_of(values, schemas.schemas, _INVALID[side.format], columns)

    return decode


def times_as_json(side: Side, registry: Mapping[str, str]) -> Callable[[pa.Array], pa.Array] | None:
    """Returns what converts values to JSON when only their time is needed; None if they are used as they are."""
    field = side.time_of.field
    if not side.format.framed or field is None:
        return None
    decode = json_values(side, registry, _fields((field,)))
    return lambda values: decode(values)[0]


def wait_for_registry(
    registry: Mapping[str, str],
    sides: Iterable[Side],
    stopped: Callable[[], bool] = lambda: False,
    give_up_after_s: float = UNREACHABLE_FOR_S,
) -> None:
    """Returns once the schema registry has answered, or `stopped()`; at once if no side needs it.

    Raises `RegistryUnreachable`, `RegistryRefused`, `ConfigError`.
    """
    kinds = {side.format for side in sides if side.format.framed}
    if not kinds:
        return
    from teacup.kafka.errors import RegistryUnreachable
    from teacup.kafka.records.registry import Registry

    client, began_s = Registry(registry, min(kinds), unreachable_for_s=0), time.monotonic()
    while not stopped():
        try:
            return client.ask()
        except RegistryUnreachable as error:
            if time.monotonic() - began_s > give_up_after_s:
                raise
            log.warning("waits: %s", error)
        time.sleep(PAUSE_S)


def needed(side: Side) -> tuple[str, ...] | None:
    """Returns the top-level fields that are needed of a side's values; None: all."""
    paths = None if side.kept is None else side.kept.paths
    if paths is None:
        return None
    of_where = () if side.where_of is None else side.where_of.paths
    fields = [path for path in (side.time_of.field, side.delete_mark[0], *of_where) if path]
    return _fields((*fields, *side.key_of.paths, *paths))


def _fields(paths: Sequence[str]) -> tuple[str, ...] | None:
    """Returns the top-level fields that these paths begin with; None if one begins with an item of an array."""
    if any(path.startswith("$[") for path in paths):
        return None
    return tuple(sorted(set(map(first_name, paths))))


def as_read(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch as it was before its values became JSON."""
    if RAW not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index("value")
    return batch.set_column(at, batch.schema.field(at), batch.column(RAW)).drop_columns(
        [RAW, UNREADABLE, *({JSON_KEY} & {*batch.schema.names})]
    )


def _decoded(records: Generator[pa.RecordBatch, None, None], decode: Decode) -> Generator[pa.RecordBatch, None, None]:
    with closing(records):
        for batch in records:
            yield decode(batch)


def _with_json(
    batch: pa.RecordBatch,
    json_values: Callable[[pa.Array], tuple[pa.Array, pa.Array]],
    json_keys: Callable[[pa.Array], tuple[pa.Array, pa.Array]] | None = None,
) -> pa.RecordBatch:
    raw = batch.column("value")
    texts, reasons = json_values(raw)
    at = batch.schema.get_field_index("value")
    with_json = batch.set_column(at, batch.schema.field(at), texts)
    whole = with_json.append_column(RAW, raw).append_column(UNREADABLE, reasons)
    if json_keys is None:
        return whole
    texts, unread = json_keys(batch.column("key"))
    return whole.append_column(JSON_KEY, pc.if_else(unread.is_valid(), b"", texts))
