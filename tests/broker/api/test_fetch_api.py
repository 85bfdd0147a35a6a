"""Fetch: limits, formats by version, waiting, isolation, sessions and errors, over a broker in this process."""

from __future__ import annotations

import random

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.api.handlers.fetch import handle_fetch
from gregor.broker.server.client_connection import ClientGoneError
from gregor.broker.server.parts import FileSlice
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.compression import Codec
from tests.asking import Asking
from tests.broker.api.log_requests import (
    batch,
    bytes_of,
    fetch,
    fetched,
    message_set,
    produce,
    produced,
    values_in,
    values_of,
)

BATCH_BYTES = len(batch(b"x" * 100))


@pytest.fixture
async def topic(asking: Asking) -> str:
    """Return a topic with three partitions, the first two with three batches each."""
    name = asking.broker.services.metadata.create_topic("t", partitions=3).name
    for partition in (0, 1):
        for _ in range(3):
            await produced(asking, produce(batch(b"x" * 100), partition=partition))
    return name


@pytest.mark.parametrize(("version", "magic"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (11, 2), (12, 2)])
async def test_each_version_gets_the_format_that_its_clients_read(
    asking: Asking, topic: str, version: int, magic: int
) -> None:
    (answer,) = await fetched(asking, fetch((0, 0)), version)
    data = await bytes_of(answer)
    assert {found.magic for found in iter_batches(data)} == {magic}
    assert [offset for offset, _ in await values_of((await fetched(asking, fetch((0, 0)), version))[0])] == [0, 1, 2]


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [0, 3, 4])
async def test_records_of_old_formats_are_fetched_with_each_version(asking: Asking, version: int, magic: int) -> None:
    asking.broker.services.metadata.create_topic("t")
    await produced(asking, produce(message_set(magic, b"a", b"b")), magic + 1)
    (answer,) = await fetched(asking, fetch((0, 0)), version)
    assert await values_of(answer) == [(0, b"a"), (1, b"b")]


@pytest.mark.parametrize("properties", [{"gregor.message.upconversion.enable": "false"}])
async def test_old_formats_go_out_as_stored_where_up_conversion_is_off(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("t")
    await produced(asking, produce(message_set(1, b"a")), 2)
    (answer,) = await fetched(asking, fetch((0, 0)), 11)
    assert isinstance(answer.records, FileSlice)
    assert [found.magic for found in iter_batches(await bytes_of(answer))] == [1]


async def test_the_first_batch_comes_whole_from_version_3_on(asking: Asking, topic: str) -> None:
    for version in (3, 4, 11):
        answers = await fetched(asking, fetch((0, 0), (1, 0), partition_max_bytes=1), version)
        assert [len(await values_of(answer)) for answer in answers] == [1, 0]
    (old,) = await fetched(asking, fetch((0, 0), partition_max_bytes=100), 2)
    data = await bytes_of(old)
    assert len(data) == 100
    assert values_in(data) == [], "the limit is smaller than the message"


async def test_fetch_fills_max_bytes_in_the_order_of_the_partitions(asking: Asking, topic: str) -> None:
    answers = await fetched(asking, fetch((2, 0), (1, 0), (0, 0), max_bytes=BATCH_BYTES + 10))
    assert [len(await values_of(answer)) for answer in answers] == [0, 1, 0]
    assert answers[2].records == b"", "no batch that is cut at its beginning"


@pytest.mark.parametrize(
    ("offset", "error"),
    [(0, 0), (3, 0), (4, ErrorCode.OFFSET_OUT_OF_RANGE), (-1, ErrorCode.OFFSET_OUT_OF_RANGE)],
)
async def test_fetch_refuses_offsets_out_of_range(asking: Asking, topic: str, offset: int, error: int) -> None:
    (answer,) = await fetched(asking, fetch((0, offset)))
    assert (answer.error_code, answer.high_watermark) == (error, -1 if error else 3)


async def test_fetch_returns_unknown_partitions_last(asking: Asking, topic: str) -> None:
    answers = await fetched(asking, fetch((9, 0), (0, 0)))
    assert [(a.partition_index, a.error_code) for a in answers] == [(0, 0), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


async def test_fetch_uses_topic_ids_from_version_13_on(asking: Asking, topic: str) -> None:
    topic_id = asking.broker.services.metadata.topics["t"].topic_id
    wanted = [FetchPartition(partition=0, partition_max_bytes=1000)]
    known, unknown = FetchTopic(topic_id=topic_id, partitions=wanted), FetchTopic(partitions=wanted)
    response = await asking.ask(handle_fetch, FetchRequest(topics=[unknown, known]), 13)
    assert [found.topic_id for found in response.responses] == [topic_id, unknown.topic_id]
    assert [found.partitions[0].error_code for found in response.responses] == [0, ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize("enabled_by", ["topic", "nobody"])
async def test_down_conversion_can_be_switched_off(asking: Asking, enabled_by: str) -> None:
    configs = {"message.downconversion.enable": "true" if enabled_by == "topic" else "false"}
    asking.broker.services.metadata.create_topic("t", configs=configs)
    await produced(asking, produce(batch(b"a")))
    (old,) = await fetched(asking, fetch((0, 0)), 3)
    assert old.error_code == (0 if enabled_by == "topic" else ErrorCode.UNSUPPORTED_VERSION)
    (new,) = await fetched(asking, fetch((0, 0)), 4)
    assert await values_of(new) == [(0, b"a")]


async def test_zstd_topics_are_not_for_old_clients(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("t", configs={"compression.type": "zstd"})
    for version, error in ((9, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (10, ErrorCode.NONE)):
        assert (await fetched(asking, fetch((0, 0)), version))[0].error_code == error


@pytest.mark.parametrize("properties", [{"gregor.message.downconversion.zstd.codec": "lz4"}])
@pytest.mark.parametrize(("version", "codec"), [(3, Codec.LZ4), (4, Codec.LZ4), (9, Codec.LZ4), (10, Codec.ZSTD)])
async def test_zstd_is_recompressed_with_the_configured_codec_for_old_clients(
    asking: Asking, version: int, codec: Codec
) -> None:
    asking.broker.services.metadata.create_topic("t", configs={"compression.type": "zstd"})
    await produced(asking, produce(batch(b"a" * 200, b"b", codec=Codec.ZSTD)), 7)
    (answer,) = await fetched(asking, fetch((0, 0)), version)
    assert {each.codec for each in iter_batches(await bytes_of(answer))} == {codec}
    (again,) = await fetched(asking, fetch((0, 0)), version)
    assert await values_of(again) == [(0, b"a" * 200), (1, b"b")]


@pytest.mark.parametrize(("epoch", "error"), [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH), (-2, 0)])
async def test_fetch_checks_the_current_leader_epoch(asking: Asking, topic: str, epoch: int, error: int) -> None:
    request = fetch((0, 0))
    request.topics[0].partitions[0].current_leader_epoch = epoch
    assert (await fetched(asking, request))[0].error_code == error


async def test_fetch_returns_the_diverging_epoch_if_the_last_fetched_epoch_ends_earlier(
    asking: Asking, topic: str
) -> None:
    request = fetch((0, 9))
    request.topics[0].partitions[0].last_fetched_epoch = 0
    (answer,) = await fetched(asking, request, 12)
    assert answer.error_code == 0
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 3)


async def test_fetch_refuses_an_unknown_isolation_level(asking: Asking, topic: str) -> None:
    response = await asking.ask(handle_fetch, fetch((0, 0), isolation_level=7), 11)
    assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_read_committed_gets_a_list_of_aborted_transactions(asking: Asking, topic: str) -> None:
    for isolation_level, aborted in ((0, None), (1, [])):
        (answer,) = await fetched(asking, fetch((0, 0), isolation_level=isolation_level))
        assert answer.aborted_transactions == aborted


# --- waiting


class Waiting:
    """A Fetch at the end of partition 0, in a task of its own."""

    def __init__(self, asking: Asking, request: FetchRequest) -> None:
        self._asking = asking
        self._request = request
        self.response: FetchResponse | None = None
        self.is_gone = False
        self.took_s = 0.0

    async def run(self) -> None:
        began = trio.current_time()
        try:
            self.response = await self._asking.ask(handle_fetch, self._request, 11)
        except ClientGoneError:
            self.is_gone = True
        self.took_s = trio.current_time() - began


@pytest.fixture
def paused_clock(autojump_clock: MockClock) -> MockClock:
    """Return a clock that only the test advances."""
    autojump_clock.autojump_threshold = float("inf")
    return autojump_clock


async def test_a_fetch_waits_for_min_bytes(
    asking: Asking, topic: str, nursery: trio.Nursery, paused_clock: MockClock
) -> None:
    waiting = Waiting(asking, fetch((0, 3), (1, 3), min_bytes=2 * BATCH_BYTES, max_wait_ms=30_000))
    nursery.start_soon(waiting.run)
    await wait_all_tasks_blocked()
    for partition in (0, 1):
        assert waiting.response is None
        await produced(asking, produce(batch(b"x" * 100), partition=partition))
        await wait_all_tasks_blocked()
    assert waiting.response is not None
    assert len(asking.broker.services.purgatory) == 0


@pytest.mark.parametrize(
    "request_",
    [
        fetch((0, 3), min_bytes=0, max_wait_ms=30_000),
        fetch((0, 3), max_wait_ms=0),
        fetch((0, 3), max_wait_ms=-1),
        fetch((0, 99), max_wait_ms=30_000),
        fetch((0, 0), (2, 0), max_wait_ms=30_000),
        FetchRequest(max_wait_ms=30_000, min_bytes=1),
    ],
    ids=["nothing wanted", "no wait", "negative wait", "error", "one has data", "no partitions"],
)
async def test_a_fetch_with_an_immediate_response_does_not_wait(
    asking: Asking, topic: str, request_: FetchRequest, paused_clock: MockClock
) -> None:
    waiting = Waiting(asking, request_)
    await waiting.run()
    assert waiting.took_s == 0


async def test_a_fetch_returns_fewer_than_min_bytes_after_max_wait_ms(
    asking: Asking, topic: str, autojump_clock: MockClock
) -> None:
    waiting = Waiting(asking, fetch((0, 2), min_bytes=10_000, max_wait_ms=20_000))
    await waiting.run()
    assert 20 <= waiting.took_s < 21
    assert waiting.response is not None
    assert [offset for offset, _ in await values_of(waiting.response.responses[0].partitions[0])] == [2]


async def test_a_delayed_fetch_ends_when_its_client_disconnects(
    asking: Asking, topic: str, nursery: trio.Nursery, paused_clock: MockClock
) -> None:
    waiting = Waiting(asking, fetch((0, 3), max_wait_ms=30_000))
    nursery.start_soon(waiting.run)
    await wait_all_tasks_blocked()
    asking.client.hangup.set()
    await wait_all_tasks_blocked()
    assert waiting.is_gone


async def test_deletion_of_a_topic_completes_its_delayed_fetches(
    asking: Asking, topic: str, nursery: trio.Nursery, paused_clock: MockClock
) -> None:
    waiting = Waiting(asking, fetch((0, 3), max_wait_ms=30_000))
    nursery.start_soon(waiting.run)
    await wait_all_tasks_blocked()
    asking.broker.services.metadata.delete_topic("t")
    await wait_all_tasks_blocked()
    assert waiting.response is not None
    assert waiting.response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_fetch_session_returns_only_changed_partitions(asking: Asking, topic: str) -> None:
    first = await asking.ask(handle_fetch, fetch((0, 3), (1, 3), session_epoch=0), 11)
    assert first.session_id > 0
    again = FetchRequest(session_id=first.session_id, session_epoch=1)
    assert (await asking.ask(handle_fetch, again, 11)).responses == []
    await produced(asking, produce(batch(b"new"), partition=1))
    again = FetchRequest(session_id=first.session_id, session_epoch=2)
    news = await asking.ask(handle_fetch, again, 11)
    assert [data.partition_index for data in news.responses[0].partitions] == [1]
    wrong = FetchRequest(session_id=first.session_id, session_epoch=2)
    assert (await asking.ask(handle_fetch, wrong, 11)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_the_metrics_count_fetch_requests_and_failed_fetch_requests(asking: Asking) -> None:
    """Kafka's TotalFetchRequestsPerSec and FailedFetchRequestsPerSec: an offset out of range is no failure."""
    asking.broker.services.metadata.create_topic("counted", partitions=2)
    await fetched(asking, fetch((0, 99), (1, 0), (7, 0), topic="counted"))
    await fetched(asking, fetch((0, 0), topic="counted", partition_max_bytes=-1))
    counters = asking.broker.services.metrics.topics["counted"]
    assert (counters.fetch_requests, counters.failed_fetch_requests) == (3, 1)


# --- what old clients get where little is allowed


@pytest.mark.parametrize("version", [0, 1, 3])
async def test_disabled_down_conversion_does_not_refuse_batches_that_need_none(asking: Asking, version: int) -> None:
    asking.broker.services.metadata.create_topic("t", configs={"message.downconversion.enable": "false"})
    (empty,) = await fetched(asking, fetch((0, 0)), version)
    assert empty.error_code == ErrorCode.NONE
    await produced(asking, produce(message_set(0, b"a", b"b")), 1)
    await produced(asking, produce(message_set(0, b"c", codec=Codec.GZIP)), 1)
    await produced(asking, produce(batch(b"d")))
    read: list[tuple[int, bytes | None]] = []
    while len(read) < 3:
        (old,) = await fetched(asking, fetch((0, len(read))), version)
        assert old.error_code == ErrorCode.NONE
        read += await values_of(old)
    assert read == [(0, b"a"), (1, b"b"), (2, b"c")]
    (new,) = await fetched(asking, fetch((0, 3)), version)
    assert new.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_v1_batches_are_refused_to_clients_of_v0_only(asking: Asking) -> None:
    asking.broker.services.metadata.create_topic("t", configs={"message.downconversion.enable": "false"})
    await produced(asking, produce(message_set(1, b"a")), 2)
    for version, error in ((1, ErrorCode.UNSUPPORTED_VERSION), (2, ErrorCode.NONE)):
        assert (await fetched(asking, fetch((0, 0)), version))[0].error_code == error


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("record_bytes", [100, 40_000])
@pytest.mark.parametrize("version", [0, 2])
async def test_old_clients_make_progress_if_a_batch_exceeds_partition_max_bytes(
    asking: Asking, topic: str, codec: Codec, record_bytes: int, version: int
) -> None:
    noise = random.Random(1)
    values = [noise.randbytes(record_bytes) for _ in range(10)]
    data = batch(*values, codec=codec)
    answer = await produced(asking, produce(data))
    offset = answer.base_offset
    limit_bytes = record_bytes * 3
    assert len(data) > limit_bytes
    read: list[tuple[int, bytes | None]] = []
    while len(read) < len(values):
        (part,) = await fetched(asking, fetch((0, offset), partition_max_bytes=limit_bytes), version)
        sent = await bytes_of(part)
        assert len(sent) <= limit_bytes
        more = [found for found in values_in(sent) if found[0] >= offset]
        assert more, "the consumer must make progress"
        read += more
        offset = read[-1][0] + 1
    assert read == list(zip(range(answer.base_offset, offset), values, strict=True))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
async def test_fetch_v1_truncates_a_message_larger_than_partition_max_bytes(
    asking: Asking, topic: str, codec: Codec
) -> None:
    answer = await produced(asking, produce(batch(random.Random(1).randbytes(500), codec=codec)))
    (part,) = await fetched(asking, fetch((0, answer.base_offset), partition_max_bytes=100), 1)
    sent = await bytes_of(part)
    assert len(sent) == 100
    assert values_in(sent) == []


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize("is_large_first", [False, True])
async def test_answers_to_old_clients_are_not_padded_where_the_size_can_be_measured(
    asking: Asking, topic: str, version: int, is_large_first: bool
) -> None:
    large = [bytes(1_000)] * 900
    values = [*large, *[b"s" * 20] * 40] if is_large_first else [*[b"s" * 20] * 40, *large]
    bounds = (len(large), 40) if is_large_first else (40, len(large))
    await produced(asking, produce(batch(*values[: bounds[0]])))
    first = await produced(asking, produce(batch(*values[bounds[0] :])))
    wanted = first.base_offset - 2 if is_large_first else first.base_offset - 40
    # The answer ends inside the second batch, or begins at the end of the first one.
    (part,) = await fetched(asking, fetch((0, wanted), partition_max_bytes=800_000 + is_large_first * 200_000), version)
    sent = await bytes_of(part)
    found = [record for record in values_in(sent) if record[0] >= wanted]
    expected = values[-42:] if is_large_first else values[:40]
    assert [value for _, value in found] == expected
    assert len(sent) == sum(len(bytes(each.view)) for each in iter_batches(sent)), "no padding"


async def test_a_fetch_of_many_partitions_lets_other_tasks_run(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    asking.broker.services.metadata.create_topic("many", partitions=50)
    for index in range(50):
        await produced(asking, produce(batch(b"a"), "many", partition=index))
    monkeypatch.setattr("gregor.broker.api.handlers.fetch.LONGEST_TURN_S", 0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        await fetched(asking, fetch(*((index, 0) for index in range(50)), topic="many"), 3)
        nursery.cancel_scope.cancel()
    assert turns > 40
