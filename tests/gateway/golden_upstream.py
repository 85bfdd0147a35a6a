"""An upstream that returns given bytes as the records of any partition: golden vectors, as a broker would have them."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gregor.broker.server.request_header_cy import parse_header
from gregor.gateway.frames import answer_parts, read_request
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from gregor.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from gregor.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker

SERVED = {ApiKey.FETCH: (4, 11), ApiKey.METADATA: (0, 8), ApiKey.API_VERSIONS: (0, 3)}


class GoldenUpstream:
    """A server of one partition's bytes; `records` may be replaced between two fetches."""

    def __init__(self) -> None:
        self.records = b""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]

    def accept_clients(self) -> None:
        """Serve each connection in a thread, until `close`."""
        with suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self, connected: socket.socket) -> None:
        with connected, suppress(OSError), connected.makefile("rwb") as stream:
            self._answer_all(stream)

    def _answer_all(self, stream: io.BufferedRWPair) -> None:
        while len(size := stream.read(4)) == 4:
            frame = memoryview(stream.read(int.from_bytes(size, "big")))
            header = parse_header(frame)
            key = ApiKey(header.api_key)
            request = read_request(key, header, frame)
            parts = answer_parts(key, header.api_version, header.correlation_id, self._answer(key, request))
            answer = b"".join(part for part in parts if isinstance(part, bytes))
            stream.write(len(answer).to_bytes(4, "big") + answer)
            stream.flush()

    def _answer(self, key: ApiKey, request: Any) -> Any:
        if key is ApiKey.API_VERSIONS:
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=api, min_version=low, max_version=high) for api, (low, high) in SERVED.items()
                ]
            )
        if key is ApiKey.METADATA:
            return MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)])
        assert isinstance(request, FetchRequest)
        part = PartitionData(partition_index=0, high_watermark=1 << 40, aborted_transactions=None, records=self.records)
        return FetchResponse(responses=[FetchableTopicResponse(topic=request.topics[0].topic, partitions=[part])])


@contextmanager
def golden_upstream() -> Iterator[GoldenUpstream]:
    """Provide a running upstream for the length of a block."""
    upstream = GoldenUpstream()
    threading.Thread(target=upstream.accept_clients, daemon=True).start()
    try:
        yield upstream
    finally:
        upstream.close()
