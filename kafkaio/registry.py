"""Schemas by their ids, from a schema registry: fetched once by each process, with bounded waits.

no such id                      None: the record that names it is a dead letter; asked again after a minute
unreachable, overloaded, 5xx    waits, and says so; then `RegistryUnreachable`
refused (401, 403), other 4xx   `RegistryRefused` at once, as for an answer that is no registry's
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx2
from confluent_kafka.schema_registry import Schema as Registered
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from kafkaio.avrojson import AvroSchema, NotAvro
from kafkaio.errors import ConfigError, RegistryRefused, RegistryUnreachable
from kafkaio.framed import Schema
from kafkaio.perprocess import PerProcess
from kafkaio.protojson import NotProtobuf, ProtoSchema
from kafkaio.sparselog import sparse

log = sparse("teacup.kafkaio.registry")

UNREACHABLE_FOR_S = 300.0
UNKNOWN_FOR_S, MOST_UNKNOWN = 60.0, 10_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
REQUEST_TIMEOUT_S = 10.0
UNKNOWN_SCHEMA, FORBIDDEN = 40403, 403
UNKNOWN_REFERENCE = (40401, 40402)  # subject, version
AVRO, PROTOBUF = "AVRO", "PROTOBUF"


class Registry:
    """One registry.

    properties   of `confluent_kafka.schema_registry.SchemaRegistryClient`: `url`, `basic.auth.user.info`, ...
    kind         of the schemas: "avro" or "protobuf"
    unreachable_for_s   how long `schema` waits for an answer

    Raises `ConfigError` for properties that the client does not accept.
    """

    def __init__(
        self, properties: Mapping[str, str], kind: str = "avro", unreachable_for_s: float = UNREACHABLE_FOR_S
    ) -> None:
        self._kind = kind.upper()
        self._shown = shown_url(properties["url"])
        self._unreachable_for_s = unreachable_for_s
        try:
            self._client = SchemaRegistryClient({"timeout": REQUEST_TIMEOUT_S, **properties, "max.retries": 0})
        except (ValueError, TypeError) as error:
            raise ConfigError(f"registry: {error}") from error
        self._known: dict[int, Schema | str] = {}
        self._unknown_at_s: dict[int, float] = {}

    def schema(self, number: int) -> Schema | str | None:
        """The schema of an id; None: there is none; a text: why it cannot be used."""
        if number in self._known:
            return self._known[number]
        if time.monotonic() - self._unknown_at_s.get(number, -math.inf) < UNKNOWN_FOR_S:
            return None
        found = self._waited_for(number)
        if found is None:
            if len(self._unknown_at_s) >= MOST_UNKNOWN:
                self._unknown_at_s.clear()
            self._unknown_at_s[number] = time.monotonic()
            return None
        self._known[number] = found
        return found

    def ask(self) -> None:
        """Return if it answers at all, whatever schemas it has. Raises `RegistryUnreachable`, `RegistryRefused`."""
        try:
            self._waited_for(1)
        except RegistryRefused as refused:
            answer = refused.__cause__
            if isinstance(answer, SchemaRegistryError) and (
                int(answer.http_status_code) == FORBIDDEN or answer.error_code in UNKNOWN_REFERENCE
            ):
                return  # that schema only may be forbidden, or refer to what was deleted
            raise

    def _waited_for(self, number: int) -> Schema | str | None:
        began_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                return self._asked(number)
            except SchemaRegistryError as error:
                status = int(error.http_status_code)
                if status < 500 and status not in (408, 429):
                    raise RegistryRefused(
                        f"schema registry {self._shown} refuses schema {number} ({error}): check `registry.url`, and "
                        "`basic.auth.user.info` or what else it wants under `registry`"
                    ) from error
                why: Exception = error
            except httpx2.TransportError as error:
                why = error
            except (ValueError, TypeError, AttributeError, KeyError) as error:  # of reading an answer
                raise RegistryRefused(
                    f"{self._shown} does not answer as a schema registry ({type(error).__name__}: {error}): correct "
                    "`registry.url`"
                ) from error
            waited_s = time.monotonic() - began_s
            if waited_s + pause_s > self._unreachable_for_s:
                raise RegistryUnreachable(
                    f"schema registry {self._shown} is unreachable ({type(why).__name__}: {why}): start it, or correct "
                    "`registry.url`"
                ) from why
            log.warning("waits for schema %d of the registry %s: %s", number, self._shown, why)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _asked(self, number: int) -> Schema | str | None:
        try:
            schema = self._client.get_schema(number, fmt=self._form)
        except SchemaRegistryError as error:
            if error.error_code == UNKNOWN_SCHEMA:
                return None
            raise
        if (schema.schema_type or AVRO) != self._kind:
            return f"a schema of type {schema.schema_type or AVRO}"
        named, text = self._referenced(schema, {}), schema.schema_str or ""
        try:
            if self._kind == PROTOBUF:
                return ProtoSchema(text, tuple(named))
            return AvroSchema(text, tuple(text for _, text in named))
        except (NotAvro, NotProtobuf) as error:
            return str(error)

    @property
    def _form(self) -> str | None:
        """In which form schemas are asked for: those of Protobuf compiled."""
        return "serialized" if self._kind == PROTOBUF else None

    def _referenced(self, schema: Registered, seen: dict[tuple[str, int], None]) -> list[tuple[str, str]]:
        """Name and text of the schemas that a schema names, each after those that it names itself."""
        found: list[tuple[str, str]] = []
        for one in schema.references or ():
            at: tuple[Any, Any] = (one.subject, one.version)
            if at in seen:
                continue
            seen[at] = None
            inner = self._client.get_version(*at, fmt=self._form).schema
            found += [*self._referenced(inner, seen), (str(one.name), inner.schema_str or "")]
        return found


def shown_url(url: str) -> str:
    """The addresses without user and password."""
    parts = [urlsplit(one.strip()) for one in url.split(",")]
    return ",".join(one._replace(netloc=one.netloc.rpartition("@")[2]).geturl() for one in parts)


_registries: PerProcess[tuple[object, ...], Registry] = PerProcess(8, lambda registry: None)


def open_registry(properties: Mapping[str, str], kind: str, unreachable_for_s: float = UNREACHABLE_FOR_S) -> Registry:
    """This process's registry, whose schemas stay known between calls."""
    key = (kind, unreachable_for_s, frozenset(properties.items()))
    return _registries.get(key, lambda: Registry(properties, kind, unreachable_for_s))
