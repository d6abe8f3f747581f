"""Schemas by their ids, from a schema registry: fetched once by each process, with bounded waits.

no such id                      missing: the record that names it is a dead letter; asked again after a minute
many such ids                   asks for the list of all schemas, once per batch: noise costs no request per record
unreachable, overloaded, 5xx    waits, and says so; then `RegistryUnreachable`
refused (401, 403), other 4xx   `RegistryRefused` at once, as for an answer that does not come from a registry
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from confluent_kafka.schema_registry import Schema as Registered
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from teacup.base.logs import sparse
from teacup.base.process import PerProcess
from teacup.kafka.errors import ConfigError, RegistryRefused, RegistryUnreachable
from teacup.kafka.records.avro import AvroSchema, NotAvro
from teacup.kafka.records.framed import Schema
from teacup.kafka.records.protobuf import NotProtobuf, ProtoSchema

log = sparse("teacup.kafka.records.registry")
T = TypeVar("T")

OPEN_REGISTRIES = 8  # in a process
UNREACHABLE_FOR_S = 300.0
UNKNOWN_FOR_S, MOST_ASKED, MOST_UNKNOWN = 60.0, 20, 10_000
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
REQUEST_TIMEOUT_S = 10.0
UNKNOWN_SCHEMA, FORBIDDEN = 40403, 403
UNKNOWN_REFERENCE = (40401, 40402)  # subject, version
AVRO, PROTOBUF = "AVRO", "PROTOBUF"


class Registry:
    """A schema registry.

    properties   of `confluent_kafka.schema_registry.SchemaRegistryClient`: `url`, `basic.auth.user.info`, ...
    kind         of the schemas: "avro" or "protobuf"
    unreachable_for_s   how long `schemas` waits for an answer

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

    def schemas(self, numbers: Iterable[int]) -> dict[int, Schema | str]:
        """Returns the schemas of these ids, or why one cannot be used. Ids that the registry lacks are missing.

        At most `MOST_ASKED` unknown ids per minute are asked for one by one. Beyond that the registry lists all its
        schemas, once per call, so that an id registered since is found. A registry that cannot list them (Redpanda) is
        asked one by one.
        """
        numbers, since_s = list(numbers), time.monotonic() - UNKNOWN_FOR_S
        self._unknown_at_s = {number: at_s for number, at_s in self._unknown_at_s.items() if at_s > since_s}
        asked = [number for number in numbers if number not in self._known and number not in self._unknown_at_s]
        room = MOST_ASKED - len(self._unknown_at_s)
        if len(asked) > room and (listed := self._waited_for(self._listed, "the list of schemas")) is not None:
            self._note_unknown(number for number in asked if number not in listed)
            asked = [number for number in asked if number in listed]
        for number in asked:
            schema = self._waited_for(partial(self._asked, number), f"schema {number}")
            if schema is None:
                self._note_unknown([number])
            else:
                self._known[number] = schema
        return {number: self._known[number] for number in numbers if number in self._known}

    def newest_ddl(self, subject: str) -> str:
        """Returns the fields of a subject's newest schema as Spark's DDL. Raises `ValueError` if there are none."""
        ddl = self._waited_for(partial(self._newest, subject), f"the newest schema of {subject!r}")
        if isinstance(ddl, str):
            raise ValueError(f"the newest schema of {subject!r} in the registry cannot be used: {ddl}")
        try:
            return ddl.ddl()
        except ValueError as error:
            raise ValueError(
                f"the newest schema of {subject!r} in the registry has no type of Spark's: {error}"
            ) from error

    def expect(self, numbers: Iterable[int]) -> None:
        """Allows ids that were unknown to be asked for again, as another process has met their schemas."""
        for number in numbers:
            self._unknown_at_s.pop(number, None)

    def _note_unknown(self, numbers: Iterable[int]) -> None:
        room = MOST_UNKNOWN - len(self._unknown_at_s)
        self._unknown_at_s.update(dict.fromkeys(islice(numbers, room), time.monotonic()))

    def ask(self) -> None:
        """Returns if it answers at all, whatever schemas it has. Raises `RegistryUnreachable`, `RegistryRefused`."""
        try:
            self._waited_for(partial(self._asked, 1), "schema 1")
        except RegistryRefused as refused:
            answer = refused.__cause__
            if isinstance(answer, SchemaRegistryError) and (
                int(answer.http_status_code) == FORBIDDEN or answer.error_code in UNKNOWN_REFERENCE
            ):
                return  # only that schema may be forbidden, or may refer to a deleted one
            raise

    def _waited_for(self, call: Callable[[], T], what: str) -> T:
        began_s, pause_s = time.monotonic(), FIRST_PAUSE_S
        while True:
            try:
                return call()
            except SchemaRegistryError as error:
                status = int(error.http_status_code)
                if status < 500 and status not in (408, 429):
                    raise RegistryRefused(
                        f"schema registry {self._shown} refuses {what} ({error}): check `registry.url`, and "
                        "`basic.auth.user.info` or what else it wants under `registry`"
                    ) from error
                why: Exception = error
            except httpx2.TransportError as error:
                why = error
            except (ValueError, TypeError, AttributeError, KeyError) as error:  # from reading an answer
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
            log.warning("waits for %s of the registry %s: %s", what, self._shown, why)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _listed(self) -> frozenset[int] | None:
        """Returns the ids of all schemas, including deleted ones; None if this registry does not list them."""
        try:
            rows = self._client._rest_client.get("schemas", {"deleted": "true"})  # the client has no method for this
        except SchemaRegistryError as error:
            if int(error.http_status_code) in (400, 403, 404, 405, 501):
                return None
            raise
        return frozenset(int(row["id"]) for row in rows)

    def _asked(self, number: int) -> Schema | str | None:
        try:
            schema = self._client.get_schema(number, fmt=self._form)
        except SchemaRegistryError as error:
            if error.error_code == UNKNOWN_SCHEMA:
                return None
            raise
        return self._usable(schema)

    def _newest(self, subject: str) -> AvroSchema | ProtoSchema | str:
        try:
            return self._usable(self._client.get_latest_version(subject, fmt=self._form).schema)
        except SchemaRegistryError as error:
            if int(error.http_status_code) == 404:
                return "there is none; register it, or give the fields as a text"
            raise

    def _usable(self, schema: Registered) -> AvroSchema | ProtoSchema | str:
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
        """The form in which schemas are requested: compiled for Protobuf."""
        return "serialized" if self._kind == PROTOBUF else None

    def _referenced(self, schema: Registered, seen: dict[tuple[str, int], None]) -> list[tuple[str, str]]:
        """Returns name and text of the schemas that a schema names, each after those that it names itself."""
        schemas: list[tuple[str, str]] = []
        for reference in schema.references or ():
            at: tuple[Any, Any] = (reference.subject, reference.version)
            if at in seen:
                continue
            seen[at] = None
            inner = self._client.get_version(*at, fmt=self._form).schema
            schemas += [*self._referenced(inner, seen), (str(reference.name), inner.schema_str or "")]
        return schemas


def shown_url(url: str) -> str:
    """Returns the addresses without user and password."""
    addresses = [urlsplit(address.strip()) for address in url.split(",")]
    return ",".join(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() for parts in addresses)


_registries: PerProcess[tuple[object, ...], Registry] = PerProcess(OPEN_REGISTRIES)


def open_registry(properties: Mapping[str, str], kind: str, unreachable_for_s: float = UNREACHABLE_FOR_S) -> Registry:
    """Returns this process's registry, whose schemas stay known between calls."""
    key = (kind, unreachable_for_s, frozenset(properties.items()))
    return _registries.get(key, lambda: Registry(properties, kind, unreachable_for_s))
