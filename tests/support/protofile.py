"""Files of Protobuf, made without its compiler."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

Message = tuple[str, Sequence[tuple[str, int | str]]]
"""Its name, and its fields: a name, and the number of a scalar type or the name of a message."""


def proto_file(name: str, messages: Sequence[Message], *imports: str) -> FileDescriptorProto:
    """A file of the package `shop`, in proto3; a field whose name ends with an `s` is repeated."""
    found = FileDescriptorProto(name=name, package="shop", syntax="proto3")
    found.dependency.extend(imports)
    for message, fields in messages:
        made = found.message_type.add(name=message)
        for number, (field, kind) in enumerate(fields, 1):
            label = FieldDescriptorProto.LABEL_REPEATED if field.endswith("s") else FieldDescriptorProto.LABEL_OPTIONAL
            entry = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                entry.type, entry.type_name = FieldDescriptorProto.TYPE_MESSAGE, kind
            else:
                entry.type = kind  # type: ignore[assignment]
    return found
