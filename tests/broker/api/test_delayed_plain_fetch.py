"""Plain Fetch requests that wait for records: the same answers, at the same events, as from the handler."""

from __future__ import annotations

from types import ModuleType

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from gregor.broker.api import delayed_plain_fetch, dispatch
from gregor.broker.api.dispatch import Dispatcher
from gregor.broker.api.handlers.quotas import handle_alter_client_quotas
from gregor.broker.server.client_connection import ClientConnection, ClientGoneError
from gregor.broker.server.outcome import Outcome, result_of
from gregor.broker.server.parts import Answer
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages import alter_client_quotas
from gregor.protocol.messages.fetch import FetchRequest
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.records.compression import Codec
from tests.asking import Asking, a_client
from tests.broker.api.fetch_lanes import two_dispatchers, use_pure_lane
from tests.broker.api.log_requests import (
    answered,
    batch,
    bytes_of_parts,
    fetch,
    frame_of,
    message_set,
    produce,
    produced,
)

VERSIONS = (0, 3, 11)
WAIT_MS = 30_000


class Waiting:
    """A request that one dispatcher answers, in a task, from a buffer that is overwritten while the request waits."""

    def __init__(self, dispatcher: Dispatcher, version: int, request: FetchRequest) -> None:
        self.client: ClientConnection = a_client()
        self.dispatcher = dispatcher
        self.frame = bytearray(frame_of(ApiKey.FETCH, version, request))
        self.answer: bytes | None = None
        self.is_gone = False
        self.has_ended = trio.Event()

    async def run(self, asking: Asking) -> None:
        hello = frame_of(ApiKey.METADATA, 9, MetadataRequest(topics=[]))
        await answered(self.dispatcher, Asking(asking.broker, self.client), hello)
        outcome = self.dispatcher.answer(memoryview(self.frame), self.client)
        self.frame[:] = bytes(len(self.frame))
        try:
            answer = await result_of(outcome, self.client.hangup)
        except ClientGoneError:
            self.is_gone = True
            return
        assert answer is not None
        self.answer = await bytes_of_parts(answer)
        self.has_ended.set()


class TwoWays:
    """The same request in two dispatchers, with the lane and without it."""

    def __init__(self, asking: Asking, nursery: trio.Nursery) -> None:
        self.asking = asking
        self._nursery = nursery
        self._dispatchers = two_dispatchers(asking.broker.services)

    async def begin(self, version: int, request: FetchRequest) -> list[Waiting]:
        """Send the request both ways; return when both wait or are answered."""
        both = [Waiting(dispatcher, version, request) for dispatcher in self._dispatchers]
        for waiting in both:
            self._nursery.start_soon(waiting.run, self.asking)
        await wait_all_tasks_blocked()
        return both


def the_answer(both: list[Waiting]) -> bytes | None:
    """Return the answer that is the same both ways."""
    by_lane, by_handler = (waiting.answer for waiting in both)
    assert by_lane == by_handler
    return by_lane


@pytest.fixture(params=["compiled", "pure python"], autouse=True)
def _both_builds(
    request: pytest.FixtureRequest, pure_modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    if request.param == "pure python":
        use_pure_lane(pure_modules, monkeypatch)


@pytest.fixture
def delayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each attempt of the lane adds the bytes that are still missing."""
    attempts: list[int] = []

    class Watched(delayed_plain_fetch.DelayedPlainFetch):
        def try_again(self, *, has_changed: bool, is_last: bool) -> Outcome[Answer | None]:
            outcome = super().try_again(has_changed=has_changed, is_last=is_last)
            attempts.append(self.missing_bytes if outcome is None else 0)
            return outcome

    monkeypatch.setattr(dispatch, "DelayedPlainFetch", Watched)
    return attempts


@pytest.fixture
def clock(autojump_clock: MockClock) -> MockClock:
    """Return a clock that only the test advances."""
    autojump_clock.autojump_threshold = float("inf")
    return autojump_clock


@pytest.fixture
async def ways(asking: Asking, nursery: trio.Nursery, delayed: list[int], clock: MockClock) -> TwoWays:
    asking.broker.services.metadata.create_topic("t", partitions=2)
    await produced(asking, produce(batch(b"a", b"b", b"c")))
    return TwoWays(asking, nursery)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "records",
    [
        batch(b"x" * 100),
        batch(*[b"y" * 90] * 40),
        batch(b"z" * 9000),
        batch(*[b"g" * 50] * 9, codec=Codec.GZIP),
        message_set(0, b"old"),
        message_set(1, b"old", b"and", b"new"),
    ],
    ids=["one", "forty", "large", "gzip", "v0", "v1"],
)
async def test_a_delayed_request_is_answered_with_the_next_records(
    ways: TwoWays, delayed: list[int], version: int, records: bytearray
) -> None:
    both = await ways.begin(version, fetch((0, 3), (1, 0), max_wait_ms=WAIT_MS))
    assert the_answer(both) is None
    assert len(ways.asking.broker.services.purgatory) == 2
    await produced(ways.asking, produce(bytearray(records)), 3 if records[16] == 2 else 2)
    await wait_all_tasks_blocked()
    for waiting in both:
        # Compressed batches are converted in threads.
        await waiting.has_ended.wait()
    assert the_answer(both)
    assert delayed == [0]
    assert len(ways.asking.broker.services.purgatory) == 0
    assert not ways.asking.broker.services.partitions.get("t", 0).is_watched
    counts = [waiting.client.request_counts[ApiKey.FETCH, version] for waiting in both]
    converted = [waiting.client.down_conversion.record_count for waiting in both]
    assert counts == [1, 1]
    assert converted[0] == converted[1]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_waits_for_min_bytes_of_all_partitions(ways: TwoWays, delayed: list[int], version: int) -> None:
    both = await ways.begin(version, fetch((0, 3), (1, 0), min_bytes=500, max_wait_ms=WAIT_MS))
    for partition in (0, 1):
        assert the_answer(both) is None
        await produced(ways.asking, produce(batch(b"x" * 250), partition=partition))
        await wait_all_tasks_blocked()
    assert the_answer(both)
    assert delayed[-1] == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_request_is_answered_with_too_few_records_after_max_wait_ms(
    ways: TwoWays, clock: MockClock, version: int
) -> None:
    both = await ways.begin(version, fetch((0, 2), min_bytes=10_000, max_wait_ms=WAIT_MS))
    clock.jump(WAIT_MS / 1000 - 1)
    await wait_all_tasks_blocked()
    assert the_answer(both) is None
    clock.jump(1)
    await wait_all_tasks_blocked()
    assert the_answer(both)


@pytest.mark.parametrize("max_wait_ms", [0, -1])
async def test_a_request_without_waiting_time_is_answered_without_records(ways: TwoWays, max_wait_ms: int) -> None:
    assert the_answer(await ways.begin(11, fetch((0, 3), max_wait_ms=max_wait_ms)))


async def test_the_deletion_of_the_topic_is_answered_with_an_error(ways: TwoWays) -> None:
    both = await ways.begin(11, fetch((0, 3), max_wait_ms=WAIT_MS))
    ways.asking.broker.services.metadata.delete_topic("t")
    await wait_all_tasks_blocked()
    assert the_answer(both)


async def test_other_changes_of_a_partition_let_the_request_wait_on(ways: TwoWays) -> None:
    both = await ways.begin(11, fetch((0, 3), max_wait_ms=WAIT_MS))
    partition = ways.asking.broker.services.partitions.get("t", 0)
    for _ in range(2):
        partition.wake_waiters()
        await wait_all_tasks_blocked()
        assert the_answer(both) is None
        assert partition.is_watched
    await produced(ways.asking, produce(batch(b"x")))
    await wait_all_tasks_blocked()
    assert the_answer(both)


async def test_a_request_that_is_no_longer_plain_waits_for_the_rest_of_its_time(
    ways: TwoWays, clock: MockClock, delayed: list[int]
) -> None:
    both = await ways.begin(11, fetch((0, 3), min_bytes=10_000, max_wait_ms=WAIT_MS))
    clock.jump(20)
    entity = alter_client_quotas.EntityData(entity_type="client-id", entity_name=None)
    limit = alter_client_quotas.OpData(key="consumer_byte_rate", value=1e9)
    entry = alter_client_quotas.EntryData(entity=[entity], ops=[limit])
    request = alter_client_quotas.AlterClientQuotasRequest(entries=[entry])
    await ways.asking.ask(handle_alter_client_quotas, request)
    ways.asking.broker.services.partitions.get("t", 0).wake_waiters()
    await wait_all_tasks_blocked()
    assert delayed == [0]
    assert the_answer(both) is None
    clock.jump(10)
    await wait_all_tasks_blocked()
    assert the_answer(both)


async def test_a_request_is_given_up_when_its_client_disconnects(ways: TwoWays) -> None:
    both = await ways.begin(11, fetch((0, 3), max_wait_ms=WAIT_MS))
    for waiting in both:
        waiting.client.hangup.set()
    await wait_all_tasks_blocked()
    assert [waiting.is_gone for waiting in both] == [True, True]
    assert len(ways.asking.broker.services.purgatory) == 0


async def test_a_broker_that_stops_answers_waiting_requests_and_delays_no_more(ways: TwoWays) -> None:
    both = await ways.begin(3, fetch((0, 3), max_wait_ms=WAIT_MS))
    ways.asking.broker.services.purgatory.stop()
    await wait_all_tasks_blocked()
    assert the_answer(both)
    assert the_answer(await ways.begin(3, fetch((0, 3), max_wait_ms=WAIT_MS)))
