"""A join of schema registry users, and its traffic: Avro and Protobuf, tombstones, large keys and large rows."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.crash.jobs import WindowJob
from tests.crash.traffic import Traffic
from tests.support.framed import avro
from tests.support.protofile import proto_file
from tests.support.registry import RegistryServer, registry_server

LARGE_KEY = 100_000  # of one key in twelve
LARGE_VALUE = 400_000  # of one value in forty: with both, and the key, a row is just below the limit of a topic
CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "n", "type": "long"}, {"name": "note", "type": "string"}],
}
SHOWN = proto_file(
    "shown.proto", [("Shown", [("n", FieldDescriptorProto.TYPE_INT64), ("note", FieldDescriptorProto.TYPE_STRING)])]
)


def _shown_class() -> type[Message]:
    pool = DescriptorPool()
    pool.Add(SHOWN)
    return GetMessageClass(pool.FindMessageTypeByName("shop.Shown"))


@dataclass
class FramedTraffic(Traffic):
    """One value in ten is a tombstone: of left a dead letter, of right skipped.

    Before each chunk the registry fails twice: a worker that starts meanwhile asks again.
    """

    registry: RegistryServer = field(default_factory=RegistryServer)
    _shown: type[Message] = field(default_factory=_shown_class)

    def __post_init__(self) -> None:
        self._ids = {
            "left": self.registry.register("clicks", CLICK),
            "right": self.registry.register_serialized("shown", SHOWN),
        }

    def feed(self) -> None:
        self.registry.failures[:] = [503, 503]
        super().feed()

    def key(self, number: int) -> bytes:
        return super().key(number) + (b"-" * LARGE_KEY if number == 0 else b"")

    def value(self, side: str, number: int) -> bytes | None:
        if number and self.numbers.random() < 0.1:
            return None
        note = "x" * LARGE_VALUE if number == 1 else "naïve"
        if side == "left":
            return avro(self._ids["left"], CLICK, {"n": number, "note": note})
        frame = struct.pack(">bIb", 0, self._ids["right"], 0)
        return frame + self._shown(n=number, note=note).SerializeToString()  # type: ignore[no-any-return]


class FramedJob(WindowJob):
    """The in-memory join with a schema registry: Avro and Protobuf, tombstones, rows near the limit of a topic."""

    def __init__(self, name: str, kafka: Mapping[str, str], topics: Mapping[str, str], folder: Path, seed: int) -> None:
        super().__init__(name, kafka, topics, folder, seed)
        self._stack = ExitStack()
        self._registry = self._stack.enter_context(registry_server())
        self.traffic = FramedTraffic(kafka, topics, random.Random(seed), registry=self._registry)

    def document(self) -> dict[str, Any]:
        document = super().document()
        return {
            **document,
            "registry": {"url": self._registry.url},
            "left": {**document["left"], "format": "avro", "tombstones": "dead_letter"},
            "right": {**document["right"], "format": "protobuf", "tombstones": "skip"},
        }

    def close(self) -> None:
        self._stack.close()
