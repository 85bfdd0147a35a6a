"""Requests of Produce and Fetch for one partition, and the frames that carry any request."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.handlers.fetch import handle_fetch
from gregor.broker.api.handlers.produce import handle_produce
from gregor.broker.server.outcome import result_of
from gregor.broker.server.parts import Buffer, Sink, total_size
from gregor.protocol.apis import ApiKey, request_header_version, response_class, response_header_version
from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from gregor.protocol.messages.header import RequestHeader, ResponseHeader
from gregor.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from gregor.protocol.schema import Message
from tests.asking import Asking

NOW_MS = 1_700_000_000_000


def records(*values: bytes) -> list[Record]:
    return [Record(offset, NOW_MS, None, value) for offset, value in enumerate(values)]


def batch(*values: bytes, codec: Codec = Codec.NONE, **more: Any) -> bytearray:
    return bytearray(v2.build_batch(records(*values), codec=codec, **more))


def message_set(magic: int, *values: bytes, codec: Codec = Codec.NONE) -> bytearray:
    build = v0.build_message_set if magic == v0.MAGIC else v1.build_message_set
    return bytearray(build(records(*values), codec=codec))


def produce(data: Buffer, topic: str = "t", *, partition: int = 0, acks: int = -1, **more: Any) -> ProduceRequest:
    part = PartitionProduceData(index=partition, records=memoryview(data))
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[part])], **more
    )


def fetch(*wanted: tuple[int, int], topic: str = "t", partition_max_bytes: int = 1 << 20, **more: Any) -> FetchRequest:
    """Return a request for (partition, offset) pairs."""
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for index, offset in wanted
    ]
    more = {"max_wait_ms": 0, "min_bytes": 1, **more}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], **more)


async def produced(asking: Asking, request: ProduceRequest, version: int = 7) -> PartitionProduceResponse:
    """Return the one partition's part of the answer."""
    response = await asking.ask(handle_produce, request, version)
    answer: PartitionProduceResponse = response.responses[0].partition_responses[0]
    return answer


async def fetched(asking: Asking, request: FetchRequest, version: int = 11) -> list[PartitionData]:
    """Return the partitions of the first topic in the answer."""
    response = await asking.ask(handle_fetch, request, version)
    answers: list[PartitionData] = response.responses[0].partitions
    return answers


class Collecting:
    """An outlet that keeps the sent bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def gather(self, data: Buffer) -> None:
        self.data += data

    async def send(self, data: Buffer, *, before_wait: object = None) -> None:
        self.data += data

    async def send_file(self, descriptor: int, position: int, size_bytes: int) -> None:
        self.data += os.pread(descriptor, size_bytes, position)


async def bytes_of(answer: PartitionData) -> bytes:
    """Return the records of a partition's answer as they go over the wire."""
    part: Any = answer.records
    if part is None or isinstance(part, bytes | bytearray | memoryview):
        return bytes(part or b"")
    outlet = Collecting()
    await part.send_to(Sink(outlet, part.size))
    return bytes(outlet.data)


async def values_of(answer: PartitionData) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of the complete records in a partition's answer."""
    return values_in(await bytes_of(answer))


def values_in(data: bytes) -> list[tuple[int, bytes | None]]:
    """Return (offset, value) of the complete records in the bytes of an answer, which are sent only once."""
    return [(record.offset, record.value) for found in iter_batches(data) for record in iter_records(found)]


def frame_of(key: ApiKey, version: int, request: Message, *, client_id: str | None = "tester") -> memoryview:
    """Return a request's frame without its length."""
    header = RequestHeader(
        request_api_key=int(key), request_api_version=version, correlation_id=77, client_id=client_id
    )
    data = encode(header, request_header_version(key, version)) + encode(request, version)
    return memoryview(bytearray(data))


def response_of(key: ApiKey, version: int, frame: Buffer) -> Any:
    """Return the response in a frame that comes without its length; checks the correlation id."""
    header_version = response_header_version(key, version)
    header = decode(ResponseHeader, frame, header_version)
    assert header.correlation_id == 77
    return decode(response_class(key), memoryview(frame)[len(encode(header, header_version)) :], version)


async def bytes_of_parts(answer: Sequence[Any]) -> bytes:
    """Return an answer as it goes over the wire."""
    outlet = Collecting()
    sink = Sink(outlet, total_size(answer))
    for part in answer:
        if isinstance(part, bytes):
            await sink.write(part)
        else:
            await part.send_to(sink)
    sink.finish()
    return bytes(outlet.data)


async def answered(dispatcher: Dispatcher, asking: Asking, frame: memoryview) -> bytes:
    """Return the bytes with which a frame is answered, without their length."""
    answer: Sequence[Any] | None = await result_of(dispatcher.answer(frame, asking.client))
    assert answer is not None
    assert all(isinstance(part, bytes) for part in answer)
    data = b"".join(answer)
    assert len(data) == total_size(answer)
    return data
