"""A blocking client of the wire protocol with one connection, for tests: it sends and returns typed messages."""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path
from typing import Any

from gregor.protocol import apis
from gregor.protocol.apis import AnyApiKey, ApiKey
from gregor.protocol.codec import decode, encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.header import RequestHeader, ResponseHeader
from gregor.protocol.messages.produce import ProduceRequest
from tests.waiting import PATIENCE_S


class Wire:
    """A connection to a broker at ``(host, port)``; each call waits for its answer, at most ``timeout`` seconds."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        timeout: float = PATIENCE_S,
        client_id: str | None = "hostile-test",
        source: str = "",
    ) -> None:
        self.socket = socket.create_connection(address, timeout, source_address=(source, 0) if source else None)
        self.client_id = client_id
        self.correlation_id = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def frame(self, key: AnyApiKey, version: int, request: Any) -> bytes:
        """Return the length-prefixed bytes of ``request`` with the header that its version wants."""
        self.correlation_id += 1
        header = RequestHeader(
            request_api_key=int(key),
            request_api_version=version,
            correlation_id=self.correlation_id,
            client_id=self.client_id,
        )
        body = encode(header, apis.request_header_version(key, version)) + encode(request, version)
        return struct.pack(">i", len(body)) + body

    def send(self, key: AnyApiKey, version: int, request: Any) -> None:
        """Write one request and do not wait."""
        self.socket.sendall(self.frame(key, version, request))

    def receive_frame(self) -> bytes:
        """Return the next answer without its length; raises ConnectionError where the broker closed instead."""
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        """Read exactly ``size`` bytes from the socket."""
        chunks = []
        while size:
            chunk = self.socket.recv(min(size, 1 << 20))
            if not chunk:
                raise ConnectionError("the broker closed the connection")
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def ask(self, key: AnyApiKey, version: int, request: Any) -> Any:
        """Send ``request`` and return its decoded response."""
        self.send(key, version, request)
        return self.answer(key, version)

    def answer(self, key: AnyApiKey, version: int) -> Any:
        """Return the next answer, decoded as one to such a request."""
        data = self.receive_frame()
        header_version = apis.response_header_version(key, version)
        header_size = len(encode(ResponseHeader(correlation_id=self.correlation_id), header_version))
        return decode(apis.response_class(key), data[header_size:], version)


def resident_bytes(pid: int, field: str = "VmRSS") -> int:
    """Return one of the kernel's memory figures for ``pid``, in bytes; ``VmHWM`` is the peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def forget_peak(pid: int) -> None:
    """Start the kernel's peak figure (``VmHWM``) afresh."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def produce_once_there_is_a_leader(wire: Wire, request: ProduceRequest, version: int = 7) -> int:
    """Return the error of a produce request, asked again while a topic that was just created has no leader."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        code = int(wire.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0].error_code)
        has_no_leader = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not has_no_leader or time.monotonic() > deadline:
            return code
        time.sleep(0.1)
