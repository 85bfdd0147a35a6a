"""One broker behind two addresses that pretend to be two brokers, so that a partition's leader can move at will.

Metadata names both; whichever does not lead answers Produce, Fetch and ListOffsets with NOT_LEADER_OR_FOLLOWER. What
is appended is the same log in either case, so a test can find lost and duplicated records.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from gregor.protocol.apis import (
    ApiKey,
    api_key,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
)
from gregor.protocol.codec import decode, encode
from gregor.protocol.errors import ErrorCode
from gregor.protocol.framing import FrameReader
from gregor.protocol.messages import fetch, produce
from gregor.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from gregor.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from gregor.protocol.messages.metadata import MetadataResponseBroker
from gregor.protocol.messages.produce import (
    PartitionProduceResponse,
    TopicProduceResponse,
)
from tests.broker_process import BrokerProcess

HOST = "127.0.0.1"
FRAME_LIMIT_BYTES = 1 << 28
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


class TwoAddresses:
    """A cluster of nodes 1 and 2; setting `leader` moves all partitions."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.ports: dict[int, int] = {}
        self.leader = 1
        self.refusals = 0
        self.leader_epoch = 0
        self.gives_hints = False
        """Whether who does not lead says who does (KIP-951), and Metadata answers go on naming `stale_leader`."""
        self.stale_leader = 1

    @property
    def bootstrap(self) -> str:
        """Both addresses."""
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    async def run(self, *, task_status: trio.TaskStatus[TwoAddresses] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            for node in (1, 2):
                listeners = await trio.open_tcp_listeners(0, host=HOST)
                self.ports[node] = listeners[0].socket.getsockname()[1]
                nursery.start_soon(partial(trio.serve_listeners, partial(self._serve, node), listeners))
            task_status.started(self)

    async def _serve(self, node: int, client: trio.SocketStream) -> None:
        try:
            async with await trio.open_tcp_stream(*self._broker.address) as broker:
                broker.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                questions, answers = _Frames(client), _Frames(broker)
                while (frame := await questions.next()) is not None:
                    answer = self._refusal(node, frame)
                    if answer is None:
                        await broker.send_all(
                            _with_length(_without_leader_epochs(frame) if self.gives_hints else frame)
                        )
                        found = await answers.next()
                        if found is None:
                            return
                        answer = self._pretend(frame, found)
                    await client.send_all(_with_length(answer))
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    def _refusal(self, node: int, frame: memoryview) -> bytes | memoryview | None:
        """Return the answer of a broker that does not lead, None if it does or the question is another."""
        key, version = api_key(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
        if node == self.leader or key not in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            return None
        self.refusals += 1
        request = decode(request_class(key), _body_of(frame), version)
        answer: Any = response_class(key)()
        _refuse_all(request, answer)
        if self.gives_hints and key == ApiKey.PRODUCE:
            self._hint_in_produce(answer)
        elif self.gives_hints and key == ApiKey.FETCH:
            self._hint_in_fetch(answer)
        head = bytes(frame[4:8]) + b"\0" * response_header_version(key, version)
        return head + encode(answer, version)

    def _hint_in_produce(self, answer: produce.ProduceResponse) -> None:
        for topic in answer.responses:
            for part in topic.partition_responses:
                part.current_leader = produce.LeaderIdAndEpoch(leader_id=self.leader, leader_epoch=self.leader_epoch)
        answer.node_endpoints = [produce.NodeEndpoint(node_id=self.leader, host=HOST, port=self.ports[self.leader])]

    def _hint_in_fetch(self, answer: fetch.FetchResponse) -> None:
        for topic in answer.responses:
            for part in topic.partitions:
                part.current_leader = fetch.LeaderIdAndEpoch(leader_id=self.leader, leader_epoch=self.leader_epoch)
        answer.node_endpoints = [fetch.NodeEndpoint(node_id=self.leader, host=HOST, port=self.ports[self.leader])]

    def _pretend(self, frame: memoryview, answer: memoryview) -> bytes | memoryview:
        """Return a Metadata answer with both nodes in it; other answers stay unchanged."""
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        if key not in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
            return answer
        head_size = 4 + response_header_version(ApiKey(key), version)
        response: Any = decode(response_class(ApiKey(key)), answer[head_size:], version)
        if key == ApiKey.FIND_COORDINATOR:
            response.node_id, response.host, response.port = 1, HOST, self.ports[1]
        else:
            response.controller_id = 1
            response.brokers = [
                MetadataResponseBroker(node_id=node, host=HOST, port=port) for node, port in self.ports.items()
            ]
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_id = self.stale_leader if self.gives_hints else self.leader
                    partition.replica_nodes = partition.isr_nodes = [1, 2]
        return bytes(answer[:head_size]) + encode(response, version)


def _without_leader_epochs(frame: memoryview) -> bytes | memoryview:
    """Return a Fetch without the leader epochs that only the hints have; other requests stay unchanged."""
    if api_key(int.from_bytes(frame[:2], "big")) != ApiKey.FETCH:
        return frame
    body, version = _body_of(frame), int.from_bytes(frame[2:4], "big")
    request: Any = decode(fetch.FetchRequest, body, version)
    for topic in request.topics:
        for part in topic.partitions:
            part.current_leader_epoch = -1
    return bytes(frame[: len(frame) - len(body)]) + encode(request, version)


def _refuse_all(request: Any, answer: Any) -> None:
    if hasattr(request, "topic_data"):
        answer.responses = [
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=part.index, error_code=NOT_LEADER) for part in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    elif hasattr(request, "max_wait_ms"):
        answer.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(partition_index=part.partition, error_code=NOT_LEADER, records=b"")
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    else:
        answer.topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=part.partition_index, error_code=NOT_LEADER)
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]


def _body_of(frame: memoryview) -> memoryview:
    """Return the request behind its header: key, version, correlation id, client id and, where there are any, tags."""
    key, version = api_key(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
    header_version = request_header_version(key, version)
    size = int.from_bytes(frame[8:10], "big", signed=True)
    return frame[10 + max(size, 0) + (1 if header_version >= 2 else 0) :]


class _Frames:
    """A reader of the length-prefixed frames of a stream."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._reader = FrameReader(FRAME_LIMIT_BYTES)

    async def next(self) -> memoryview | None:
        """Return the next one, None at the end."""
        while (frame := self._reader.next_frame()) is None:
            data = await self._stream.receive_some()
            if not data:
                return None
            self._reader.feed(data)
        return frame


def _with_length(frame: bytes | memoryview) -> bytes:
    return len(frame).to_bytes(4, "big") + bytes(frame)


@asynccontextmanager
async def two_addresses(broker: BrokerProcess) -> AsyncIterator[TwoAddresses]:
    """Provide both addresses for the length of a block."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(TwoAddresses(broker).run)
        nursery.cancel_scope.cancel()
