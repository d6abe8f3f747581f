"""Schemas from a registry, and the frames that name them."""

from __future__ import annotations

import json
import logging
import random
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from teacup.base.errors import ExitCode
from teacup.kafka.errors import ConfigError, RegistryRefused, RegistryUnreachable
from teacup.kafka.records import registry as registries
from teacup.kafka.records.avro import AvroSchema
from teacup.kafka.records.framed import json_of
from teacup.kafka.records.registry import Registry
from tests.support.framed import avro
from tests.support.protofile import proto_file
from tests.support.registry import RegistryServer, registry_server

ID = {"type": "record", "name": "Click", "fields": [{"name": "id", "type": "string"}]}
HEAD = b"\x00\x00\x00\x00\x01"
MORE = {**ID, "fields": [*ID["fields"], {"name": "n", "type": "long", "default": 0}]}  # type: ignore[misc]


WHO = [("Who", [("id", 3)])]
CLICK = [("Other", [("z", 5)]), ("Click", [("id", 9), ("by", ".shop.Who")])]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as running:
        yield running


def test_a_topic_whose_schema_changes_is_read_with_each_records_own(server: RegistryServer) -> None:
    """In one batch, in order; a schema is fetched once, an unknown one and bad records are distinguished."""
    old, new = server.register("clicks", ID), server.register("clicks", MORE)
    values = [
        avro(old, ID, {"id": "a"}),
        avro(new, MORE, {"id": "b", "n": 7}),
        None,
        avro(99, ID, {"id": "c"}),
        b"{}",
        avro(old, ID, {"id": "d"}) + b"!",
        avro(old, ID, {"id": "e"}),
    ]
    registry = Registry({"url": server.url})

    for _ in range(2):
        texts, reasons = json_of(pa.array(values, pa.binary()), registry.schemas, "invalid_avro")

    read = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    assert read == [{"id": "a"}, {"id": "b", "n": 7}, None, None, None, None, {"id": "e"}]
    assert reasons.to_pylist() == [None, None, None, "unknown_schema", "invalid_avro", "invalid_avro", None]
    assert [path.partition("?")[0] for path in server.asked].count(f"/schemas/ids/{old}") == 1


def test_references_are_fetched_with_what_they_name(server: RegistryServer) -> None:
    """Each before those that need it."""
    server.register("who", {"type": "record", "name": "Who", "fields": [{"name": "id", "type": "int"}]})
    pair = {"type": "record", "name": "Pair", "fields": [{"name": "a", "type": "Who"}, {"name": "b", "type": "Who"}]}
    server.register("pair", pair, [{"name": "Who", "subject": "who", "version": 1}])
    click = {"type": "record", "name": "Click", "fields": [{"name": "by", "type": "Pair"}]}
    number = server.register("clicks", click, [{"name": "Pair", "subject": "pair", "version": 1}])

    schema = Registry({"url": server.url}).schemas([number])[number]

    assert isinstance(schema, AvroSchema)
    assert schema.json_of(pa.array([b"\x02\x04"], pa.binary())).to_pylist() == ['{"by":{"a":{"id":1},"b":{"id":2}}}']


def test_a_registry_that_fails_is_waited_for(server: RegistryServer, caplog: pytest.LogCaptureFixture) -> None:
    """And it says so; nothing is decided meanwhile."""
    number = server.register("clicks", ID)
    server.failures = [503, 500, 429]

    with caplog.at_level(logging.WARNING):
        schema = Registry({"url": server.url}).schemas([number])[number]

    assert isinstance(schema, AvroSchema)
    assert f"schema {number} of the registry {server.url}" in caplog.text


def test_a_registry_that_stays_unreachable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its address, without the password in it, and as an unreachable broker is reported."""
    monkeypatch.setattr(registries, "FIRST_PAUSE_S", 0.01)

    with pytest.raises(RegistryUnreachable, match=r"schema registry http://127.0.0.1:9 is unreachable") as caught:
        Registry({"url": "http://user:hidden@127.0.0.1:9"}, unreachable_for_s=0.05).schemas([1])

    assert "hidden" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_a_registry_that_refuses_ends_the_job() -> None:
    """A wrong user, or an address that is no registry's: waiting does not help."""
    with registry_server("reader:secret") as server:
        number = server.register("clicks", ID)

        assert Registry({"url": server.url, "basic.auth.user.info": "reader:secret"}).schemas([number])
        with pytest.raises(RegistryRefused, match=r"basic\.auth\.user\.info"):
            Registry({"url": server.url}).schemas([number])
        with pytest.raises(RegistryRefused, match=r"registry\.url"):
            Registry({"url": f"{server.url}/elsewhere", "basic.auth.user.info": "reader:secret"}).schemas([number])


def test_protobuf_messages_name_their_file_and_message(server: RegistryServer) -> None:
    """The registry compiles schemas; imports are fetched, and a schema of the other kind is refused."""
    who, click = proto_file("who.proto", WHO), proto_file("click.proto", CLICK, "who.proto")
    server.register_serialized("who", who)
    number = server.register_serialized("clicks", click, [{"name": "who.proto", "subject": "who", "version": 1}])
    avro = server.register("avro", ID)
    head = struct.pack(">bI", 0, number)
    message = b"\x0a\x01a\x12\x02\x08\x05"  # id = "a", by = {id = 5}
    values = [
        head + b"\x02\x02" + message,
        head + b"\x00\x08\x07",
        head + b"\x02\x09",
        struct.pack(">bI", 0, avro),
        None,
    ]

    texts, reasons = json_of(
        pa.array(values, pa.binary()), Registry({"url": server.url}, "protobuf").schemas, "invalid_protobuf"
    )

    read = [None if text is None else json.loads(text) for text in texts.to_pylist()]
    assert read == [{"id": "a", "by": {"id": 5}}, {"z": 7}, None, None, None]
    assert reasons.to_pylist() == [None, None, "invalid_protobuf", "invalid_protobuf", None]


def test_a_schema_of_another_type_is_none_of_ours(server: RegistryServer) -> None:
    """Its records are dead letters, and so are those of a text that is no schema."""
    protobuf, torn = server.register("a", ID), server.register("b", ID)
    server.schemas[protobuf]["schemaType"] = "PROTOBUF"
    server.schemas[torn]["schema"] = "{torn"
    registry = Registry({"url": server.url})
    values = pa.array([avro(number, ID, {"id": "a"}) for number in (protobuf, torn)], pa.binary())

    _, reasons = json_of(values, registry.schemas, "invalid_avro")

    assert reasons.to_pylist() == ["invalid_avro", "invalid_avro"]


def test_an_unknown_schema_is_asked_for_once_a_minute(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be registered later."""
    registry = Registry({"url": server.url})

    assert [registry.schemas([7]), registry.schemas([7])] == [{}, {}]

    assert len(server.asked) == 1
    monkeypatch.setattr(registries, "UNKNOWN_FOR_S", 0.0)
    server.schemas[7] = {"schema": json.dumps(ID)}
    assert isinstance(registry.schemas([7])[7], AvroSchema)


@pytest.mark.parametrize("registered", [0, 3])
def test_noise_in_place_of_ids_costs_a_few_requests(server: RegistryServer, registered: int) -> None:
    """However many ids it names; a schema registered meanwhile is found in the next batch, noise or not."""
    numbers = [server.register("clicks", ID) for _ in range(registered)]
    noise = random.Random(7).sample(range(1_000, 2**32), 10_000)
    registry = Registry({"url": server.url})

    def read(ids: list[int]) -> list[str | None]:
        values = [struct.pack(">bI", 0, number) + b"\x02a" for number in ids]
        return json_of(pa.array(values, pa.binary()), registry.schemas, "invalid_avro")[1].to_pylist()

    assert read([*noise[:5_000], *numbers]) == ["unknown_schema"] * 5_000 + [None] * registered
    new = server.register("clicks", MORE)
    server.schemas[new] = {"schema": json.dumps(ID)}
    assert read([*noise[5_000:], new, *numbers]) == ["unknown_schema"] * 5_000 + [None] * (registered + 1)

    assert len(server.asked) == 2 + registered + 1  # twice the list, and each schema


def test_a_registry_that_does_not_list_its_schemas_is_asked_for_each(server: RegistryServer) -> None:
    """None of them is guessed."""
    server.lists = False
    number = server.register("clicks", ID)
    registry = Registry({"url": server.url})

    assert registry.schemas([*range(100, 130), number]).keys() == {number}

    assert len(server.asked) == 32


def test_properties_that_the_client_does_not_know_are_refused() -> None:
    """By name."""
    with pytest.raises(ConfigError, match=r"registry: .*basic\.auth\.user"):
        Registry({"url": "http://127.0.0.1:9", "basic.auth.user": "a"})


@given(st.lists(st.none() | st.binary(max_size=7) | st.binary(max_size=3).map(lambda rest: HEAD + rest), max_size=8))
@example([HEAD + b"\x00"])
def test_any_bytes_have_a_text_or_a_reason(values: list[bytes | None]) -> None:
    """Never both; a null value has neither. Those with a frame are what fastavro reads."""
    schema = AvroSchema(json.dumps(ID))

    texts, reasons = json_of(pa.array(values, pa.binary()), lambda _: {1: schema}, "invalid_avro")

    for value, text, reason in zip(values, texts.to_pylist(), reasons.to_pylist(), strict=True):
        assert (text is None) == (value is None or reason is not None)
        if value is None:
            assert reason is None
        elif len(value) < 5 or value[0] != 0:
            assert reason == "invalid_avro"
        elif value[:5] != HEAD:
            assert reason == "unknown_schema"
        else:
            assert text == schema.json_of(pa.array([value[5:]], pa.binary())).cast(pa.binary()).to_pylist()[0]
