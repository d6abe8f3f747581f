"""A schema registry over HTTP: the part of Confluent's REST protocol that readers and producers of schemas use.

It keeps schemas in memory, and does not compile: a Protobuf schema is registered in the form in which it is asked for.
A real one also has what this one lacks: compatibility checks, contexts, deletion, modes, TLS. An id is given to
each registered text; ids count from 1 over all subjects.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """schemas by id; subjects: the ids of their versions; asked: paths.

    failures   statuses of the next answers
    page       an answer in place of all others
    lists      whether it lists its schemas; Redpanda's does not
    """

    def __init__(self, user_info: str | None = None) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.page: bytes | None = None
        self.lists = True
        self._user_info = user_info
        self.url = ""

    def register(self, subject: str, schema: object, references: list[dict[str, Any]] | None = None) -> int:
        """The id of a new version; references: `name`, `subject`, `version` of each."""
        number = len(self.schemas) + 1
        self.schemas[number] = {"schema": json.dumps(schema), **({"references": references} if references else {})}
        self.subjects.setdefault(subject, []).append(number)
        return number

    def register_serialized(self, subject: str, file: Any, references: list[dict[str, Any]] | None = None) -> int:
        """The same for a file of Protobuf (`FileDescriptorProto`), as it is answered to `format=serialized`."""
        number = self.register(subject, None, references)
        text = base64.b64encode(file.SerializeToString()).decode()
        self.schemas[number] |= {"schema": text, "schemaType": "PROTOBUF"}
        return number

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, Any] | list[dict[str, Any]]]:
        """Status and body."""
        self.asked.append(path)
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "set to fail"}
        if self._user_info is not None:
            wanted = "Basic " + base64.b64encode(self._user_info.encode()).decode()
            if authorization != wanted:
                return 401, {"error_code": 401, "message": "who are you?"}
        if found := re.match(r"/schemas/ids/(\d+)(?:\?.*)?$", path):
            schema = self.schemas.get(int(found[1]))
            return (200, schema) if schema else (404, {"error_code": 40403, "message": "Schema not found"})
        if self.lists and re.match(r"/schemas(\?.*)?$", path):
            return 200, [{"id": number, **schema} for number, schema in self.schemas.items()]
        if found := re.match(r"/subjects/([^/]+)/versions/(\d+)(?:\?.*)?$", path):
            numbers = self.subjects.get(found[1], [])
            version = int(found[2])
            if version <= len(numbers):
                number = numbers[version - 1]
                return 200, {"subject": found[1], "version": version, "id": number, **self.schemas[number]}
        if (found := re.match(r"/subjects/([^/]+)/versions/latest(?:\?.*)?$", path)) and found[1] in self.subjects:
            numbers = self.subjects[found[1]]
            return 200, {"subject": found[1], "version": len(numbers), "id": numbers[-1], **self.schemas[numbers[-1]]}
        return 404, {"error_code": 404, "message": "not found"}


@contextmanager
def registry_server(user_info: str | None = None) -> Iterator[RegistryServer]:
    """A registry that answers at its `url`; with `user_info` only to those who give it."""
    registry = RegistryServer(user_info)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers.get("Authorization"))
            content = json.dumps(body).encode() if registry.page is None else registry.page
            status = status if registry.page is None else 200
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
