"""A schema registry for tests: the part of Confluent's REST API that serializers and readers use, over HTTP or TLS."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

FIRST_ID = 100


@dataclass
class SchemaRegistry:
    """The schemas of a registry by id, and the ids of each subject's versions; a schema has one id in all subjects.

    `refusal` is a status with which all requests are answered, `moved_to` the URL of a registry to which all are
    redirected; `asked` are the paths of the requests, `authorizations` their headers of that name.
    """

    url: str = ""
    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    user_info: str | None = None
    refusal: int | None = None
    moved_to: str | None = None
    asked: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)

    def register(self, subject: str, schema: object, kind: str = "AVRO", references: Any = ()) -> int:
        """Add a version of a subject; return the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        entry: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            entry["schemaType"] = kind
        if references:
            entry["references"] = list(references)
        if entry not in self.schemas:
            self.schemas.append(entry)
        number = FIRST_ID + self.schemas.index(entry)
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, method: str, path: str, body: bytes, authorization: str | None) -> tuple[int, object]:
        """Return the status and the JSON of an answer."""
        self.asked.append(path)
        self.authorizations.append(authorization)
        if self.moved_to is not None:
            return 307, {}
        if self.refusal is not None:
            return self.refusal, {"error_code": self.refusal, "message": "as told"}
        if self.user_info is not None:
            expected = "Basic " + base64.b64encode(self.user_info.encode()).decode()
            if authorization != expected:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")]
        match method, parts:
            case "GET", ["schemas", "ids", number]:
                index = int(number) - FIRST_ID
                if not 0 <= index < len(self.schemas):
                    return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
                return 200, self.schemas[index]
            case "GET", ["subjects"]:
                return 200, sorted(self.subjects)
            case "GET", ["subjects", subject, "versions", version]:
                return self._version(subject, version)
            case "POST", ["subjects", subject]:
                told = json.loads(body)
                entry = {"schema": told["schema"]}
                if told.get("schemaType", "AVRO") != "AVRO":
                    entry["schemaType"] = told["schemaType"]
                numbers = self.subjects.get(subject, [])
                found = [number for number in numbers if self.schemas[number - FIRST_ID] == entry]
                if not found:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, {"subject": subject, "version": numbers.index(found[0]) + 1, "id": found[0], **entry}
            case "POST", ["subjects", subject, "versions"]:
                told = json.loads(body)
                kind = told.get("schemaType", "AVRO")
                return 200, {"id": self.register(subject, told["schema"], kind, told.get("references", ()))}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, version: str) -> tuple[int, object]:
        numbers = self.subjects.get(subject)
        if numbers is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        index = len(numbers) if version == "latest" else int(version)
        if not 1 <= index <= len(numbers):
            return 404, {"error_code": 40402, "message": f"Version {version} not found."}
        number = numbers[index - 1]
        named = {"subject": subject, "version": index, "id": number}
        return 200, {**named, **self.schemas[number - FIRST_ID]}


@contextlib.contextmanager
def running_registry(context: ssl.SSLContext | None = None) -> Iterator[SchemaRegistry]:
    """Run a registry on a free port in a thread, with TLS if there is a context."""
    registry = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, told = registry.answer(self.command, self.path, body, self.headers.get("Authorization"))
            encoded = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(encoded)))
            if registry.moved_to is not None:
                self.send_header("Location", registry.moved_to + self.path)
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_POST = _serve  # noqa: N815 - the names of the base class

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'s' if context else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
