"""The times of requests on one connection: each request is measured once, and each wait counts for the right step."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.broker.server import request_times
from gregor.broker.server.client_connection import ClientConnection
from gregor.broker.server.connection import Connection
from gregor.broker.server.outcome import Outcome
from gregor.broker.server.parts import Answer
from gregor.broker.server.pending import Pending
from gregor.broker.server.readiness import Readiness
from gregor.broker.server.request_times import STEPS, RequestTimes, StepTimes
from gregor.broker.server.transport import SocketTransport
from gregor.protocol.apis import ApiKey

WAIT_S = 0.02
WAIT_MS = WAIT_S * 1000


class Clock:
    """A clock in seconds that only `wait` advances, so that no pause of a busy machine counts as a wait."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def wait(self) -> None:
        """Wait as a handler does that keeps the event loop."""
        self.now_s += WAIT_S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Provide the clock by which requests are measured."""
    clock = Clock()
    monkeypatch.setattr(request_times, "perf_counter", clock)
    return clock


class Responder:
    """A responder that waits in each of the ways in which a request can wait; the key is the first two bytes."""

    plain_lane = None

    def __init__(self, clock: Clock) -> None:
        self.late: list[Pending[Any]] = []
        self._clock = clock

    def is_pipelined(self, frame: memoryview, client: ClientConnection) -> bool:
        return True

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
        match bytes(frame[2:]):
            case b"silent":
                return None
            case b"late":
                self.late.append(Pending())
                return self.late[-1]
            case b"task":
                return self._in_task()
            case b"slow":
                self._clock.wait()
        return [b"answer"]

    async def _in_task(self) -> Answer | None:
        await trio.lowlevel.checkpoint()
        self._clock.wait()
        return [b"answer"]


class Peer:
    """The client's end of a timed connection."""

    def __init__(self, nursery: trio.Nursery, clock: Clock, *, is_follower: bool = False) -> None:
        here, there = socket.socketpair()
        self.stream = trio.SocketStream(trio.socket.from_stdlib_socket(here))
        self.responder, self.times = Responder(clock), RequestTimes()
        client = ClientConnection(
            ("peer", 1), ("here", 2), "PLAINTEXT", "test-0", trio.Event(), is_follower=is_follower
        )
        readiness = Readiness()
        connection = Connection(
            SocketTransport(there), self.responder, client, readiness, frame_limit_bytes=1000, times=self.times
        )
        nursery.start_soon(readiness.run)
        nursery.start_soon(connection.run)

    async def send(self, *requests: tuple[ApiKey, bytes]) -> None:
        frames = [key.to_bytes(2, "big") + text for key, text in requests]
        await self.stream.send_all(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        await wait_all_tasks_blocked()

    def counts(self) -> dict[object, int]:
        return {key: found.count for key, found in self.times.by_api()}

    def steps(self, key: ApiKey) -> dict[str, float]:
        """Return the longest time of each step of an API's requests."""
        return longest(dict(self.times.by_api())[key])


def longest(found: StepTimes) -> dict[str, float]:
    return {name: found.sorted_samples(step)[-1] for step, name in enumerate(STEPS)}


async def test_each_request_is_measured_once_in_whatever_way_it_is_answered(
    nursery: trio.Nursery, clock: Clock
) -> None:
    peer = Peer(nursery, clock)
    await peer.send(
        (ApiKey.PRODUCE, b"late"),
        (ApiKey.PRODUCE, b"silent"),
        (ApiKey.METADATA, b"now"),
        (ApiKey.PRODUCE, b"late"),
        (ApiKey.LIST_OFFSETS, b"task"),
    )
    assert peer.counts() == {ApiKey.PRODUCE: 1}, "the answers behind the pending one are not sent yet"
    for pending in peer.responder.late:
        pending.complete([b"answer"])
    await wait_all_tasks_blocked()
    assert peer.counts() == {ApiKey.PRODUCE: 3, ApiKey.METADATA: 1, ApiKey.LIST_OFFSETS: 1}
    await peer.send((ApiKey.METADATA, b"now"), (ApiKey.METADATA, b"now"))
    assert peer.counts()[ApiKey.METADATA] == 3
    await peer.stream.aclose()


async def test_each_wait_counts_for_its_step(nursery: trio.Nursery, clock: Clock) -> None:
    peer = Peer(nursery, clock)
    await peer.send((ApiKey.METADATA, b"slow"), (ApiKey.FIND_COORDINATOR, b"now"))
    assert peer.steps(ApiKey.METADATA)["LocalTimeMs"] == pytest.approx(WAIT_MS)
    assert peer.steps(ApiKey.FIND_COORDINATOR)["RequestQueueTimeMs"] == pytest.approx(WAIT_MS)
    assert peer.steps(ApiKey.FIND_COORDINATOR)["LocalTimeMs"] == 0
    await peer.send((ApiKey.LIST_OFFSETS, b"task"))
    assert peer.steps(ApiKey.LIST_OFFSETS)["LocalTimeMs"] == pytest.approx(WAIT_MS)
    await peer.send((ApiKey.PRODUCE, b"late"), (ApiKey.HEARTBEAT, b"late"))
    first, second = peer.responder.late
    second.complete([b"answer"])
    clock.wait()
    first.complete([b"answer"])
    await wait_all_tasks_blocked()
    assert peer.steps(ApiKey.PRODUCE)["RemoteTimeMs"] == pytest.approx(WAIT_MS)
    assert peer.steps(ApiKey.HEARTBEAT)["ResponseQueueTimeMs"] == pytest.approx(WAIT_MS)
    for key in (ApiKey.PRODUCE, ApiKey.HEARTBEAT):
        assert peer.steps(key)["TotalTimeMs"] == pytest.approx(WAIT_MS)
    await peer.stream.aclose()


async def test_fetches_of_followers_and_of_consumers_are_told_apart(nursery: trio.Nursery, clock: Clock) -> None:
    for is_follower, expected in (
        (False, {"FetchConsumer": 1, "FetchFollower": 0}),
        (True, {"FetchConsumer": 0, "FetchFollower": 1}),
    ):
        peer = Peer(nursery, clock, is_follower=is_follower)
        await peer.send((ApiKey.FETCH, b"now"))
        assert {name: found.count for name, found in peer.times.fetches()} == expected
        assert peer.counts() == {ApiKey.FETCH: 1}
        await peer.stream.aclose()


def test_only_the_last_requests_are_kept() -> None:
    times = StepTimes()
    for number in range(3000):
        times.add((float(number),) * len(STEPS))
    samples = times.sorted_samples(0)
    assert (times.count, len(samples), samples[0], samples[-1]) == (3000, 1028, 3000 - 1028, 2999)
