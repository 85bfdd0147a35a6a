"""The enriched tags of batches are sent to clients that request them, and to no other client."""

from __future__ import annotations

import pytest

from gregor.broker.replicas.fetching import reading
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchRequest, FetchResponse
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.enriched import KafkaTags
from gregor.protocol.records.tagged_batches import TaggedBatch, decode_tagged_batches
from tests.asking import Asking
from tests.broker.api.log_requests import NOW_MS, batch, fetch, fetched, message_set, produce, produced, values_of
from tests.broker_process import BrokerProcess
from tests.wire import Wire, produce_once_there_is_a_leader

PLAIN = KafkaTags(None, 1, relative_offsets_honoured=True)


def without_receipts(tagged: list[TaggedBatch]) -> list[TaggedBatch]:
    """Return the tags without the receipt times, which are those of the broker's clock and not the producer's."""
    assert all((tags.timestamp_ms or 0) > NOW_MS for _, tags in tagged)
    return [TaggedBatch(offset, tags._replace(timestamp_ms=None)) for offset, tags in tagged]


def fetch_frame(wire: Wire, request: FetchRequest, version: int) -> bytes:
    wire.send(ApiKey.FETCH, version, request)
    return wire.receive_frame()


@pytest.mark.parametrize("version", [12, 17])
def test_fetch_returns_batch_tags_only_to_clients_that_request_them(
    broker_process: BrokerProcess, version: int
) -> None:
    with Wire(broker_process.address) as wire:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=9000))
        for sent in (batch(b"a", b"b", codec=Codec.GZIP), batch(b"c")):
            assert produce_once_there_is_a_leader(wire, produce(sent)) == 0
        asking = fetch((0, 0), gregor_with_tags=True)
        plain = fetch((0, 0))
        if version > 12:
            metadata = wire.ask(ApiKey.METADATA, 12, metadata_of("t"))
            for request in (asking, plain):
                request.topics[0].topic_id = metadata.topics[0].topic_id
        with_tags, without = fetch_frame(wire, asking, version), fetch_frame(wire, plain, version)
        response: FetchResponse = wire.ask(ApiKey.FETCH, version, asking)
    data = response.responses[0].partitions[0]
    tags = decode_tagged_batches(data.gregor_batch_tags or b"")
    first = KafkaTags(None, 2, relative_offsets_honoured=True, keyed=False)
    assert without_receipts(tags[:2]) == [TaggedBatch(0, first), TaggedBatch(2, PLAIN)]
    head_of_the_field = 3 + 1 + 1
    assert len(with_tags) == len(without) + head_of_the_field + len(data.gregor_batch_tags or b"")


def metadata_of(topic: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)])


async def test_fetch_returns_the_batch_tags_of_old_formats(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("t")
    for version, data in (
        (1, message_set(0, b"a")),
        (1, message_set(0, b"b", b"c", codec=Codec.GZIP)),
        (2, message_set(1, b"d", b"e", codec=Codec.GZIP)),
    ):
        await produced(asking, produce(data), version)
    (answer,) = await fetched(asking, fetch((0, 0), gregor_with_tags=True), 12)
    tagged = decode_tagged_batches(answer.gregor_batch_tags or b"")
    assert [offset for offset, _ in tagged] == [0, 1, 3]
    assert [tags.message_count for _, tags in tagged] == [1, 2, 2]
    assert [tags.relative_offsets_honoured for _, tags in tagged] == [True, False, True]
    assert [tags.keyed for _, tags in tagged] == [None, False, False]
    assert without_receipts(tagged)[0] == TaggedBatch(0, PLAIN)


async def test_fetch_returns_no_batches_beyond_the_limit_of_tagged_batches(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_TAGGED_BATCHES", 2)
    asking.broker.services.metadata.create_topic("t")
    for value in (b"a", b"b", b"c"):
        await produced(asking, produce(batch(value)))
    (answer,) = await fetched(asking, fetch((0, 0), gregor_with_tags=True), 12)
    tagged = decode_tagged_batches(answer.gregor_batch_tags or b"")
    assert without_receipts(tagged) == [TaggedBatch(0, PLAIN), TaggedBatch(1, PLAIN)]
    assert await values_of(answer) == [(0, b"a"), (1, b"b")]
    (plain,) = await fetched(asking, fetch((0, 0)), 12)
    assert plain.gregor_batch_tags is None
