"""The connection of a follower to its leader, against correct and faulty leaders."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from gregor.broker.peers.peer_connection import Address, PeerConnection
from gregor.broker.replicas.replication.fetch_lane import FetchLane, GivenUpError
from gregor.broker.server.readiness import Readiness
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.framing import LENGTH
from gregor.protocol.messages.fetch import FetchRequest, FetchResponse
from tests.broker.peers.scripted_node import OnRequest, listening
from tests.waiting import PATIENCE_S

VERSION = 17


def answer_to(frame: bytes, session_id: int, *, correlation_id: bytes | None = None) -> bytes:
    body = encode(FetchResponse(session_id=session_id), VERSION)
    told = frame[4:8] if correlation_id is None else correlation_id
    return LENGTH.pack(5 + len(body)) + told + b"\0" + body


async def ask(lane: FetchLane, address: Address, timeout_s: float = PATIENCE_S) -> FetchResponse:
    return await lane.ask(address, FetchRequest(), FetchResponse, version=VERSION, timeout_s=timeout_s)


async def test_a_fetch_lane_uses_one_connection_for_all_requests(nursery: trio.Nursery) -> None:
    async def leader(stream: trio.SocketStream, frame: bytes) -> None:
        data = answer_to(frame, 9)
        await stream.send_all(data[:7])
        await stream.send_all(data[7:])

    address, connections = await listening(nursery, leader)
    lane = FetchLane("broker-2-fetcher-0")
    for _ in range(3):
        assert (await ask(lane, address)).session_id == 9
    assert len(connections) == 1
    lane.close()
    nursery.cancel_scope.cancel()


async def hang_up(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_eof()


async def keep_silent(stream: trio.SocketStream, frame: bytes) -> None:
    await trio.sleep_forever()


async def answer_another(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_all(answer_to(frame, 9, correlation_id=b"\0\0\0\x63"))


async def answer_nonsense(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_all(LENGTH.pack(6) + frame[4:8] + b"\0\xff")


@pytest.mark.parametrize("leader", [hang_up, keep_silent, answer_another, answer_nonsense])
async def test_after_a_network_exception_the_next_request_opens_a_new_connection(
    nursery: trio.Nursery, leader: OnRequest
) -> None:
    address, connections = await listening(nursery, leader)
    lane = FetchLane("broker-2-fetcher-0")
    for _ in range(2):
        with pytest.raises(BrokerError) as caught:
            await ask(lane, address, timeout_s=0.5 if leader is keep_silent else PATIENCE_S)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert len(connections) == 2
    nursery.cancel_scope.cancel()


async def test_a_cancelled_request_closes_the_connection(nursery: trio.Nursery) -> None:
    patience: list[trio.CancelScope] = []

    async def try_patience(stream: trio.SocketStream, frame: bytes) -> None:
        patience[-1].cancel()
        await trio.sleep_forever()

    address, connections = await listening(nursery, try_patience)
    lane = FetchLane("broker-2-fetcher-0")
    for _ in range(2):
        patience.append(trio.CancelScope())
        with patience[-1]:
            await ask(lane, address)
    assert [scope.cancelled_caught for scope in patience] == [True, True]
    assert len(connections) == 2
    nursery.cancel_scope.cancel()


async def test_an_unreachable_leader_is_broker_not_available() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = listener.socket.getsockname()
    await listener.aclose()
    with pytest.raises(BrokerError) as caught:
        await ask(FetchLane("broker-2-fetcher-0"), address)
    assert caught.value.code is ErrorCode.BROKER_NOT_AVAILABLE


class CountingSteps:
    """Steps that take complete answers of a session, and ask for the next one, until they are over."""

    def __init__(self, session_id: int = 9) -> None:
        self.correlation_id = 0
        self.is_over = False
        self.session_id = session_id
        self.taken = 0
        self.space = memoryview(b"")

    def begin(self, connection: PeerConnection) -> CountingSteps:
        self.space = connection.space
        return self

    def take(self, size_bytes: int) -> bytes | None:
        frame = bytes(self.space[:size_bytes])
        if self.is_over or frame != answer_to(b"\0" * 4 + self.correlation_id.to_bytes(4, "big"), self.session_id):
            return None
        self.taken += 1
        self.correlation_id += 1
        body = b"\0\1\0\x11" + self.correlation_id.to_bytes(4, "big") + b"\xff\xff\0" + encode(FetchRequest(), VERSION)
        return LENGTH.pack(len(body)) + body


async def ask_in_steps(lane: FetchLane, address: Address, steps: CountingSteps) -> FetchResponse:
    return await lane.ask(
        address, FetchRequest(), FetchResponse, version=VERSION, timeout_s=PATIENCE_S, new_steps=steps.begin
    )


@pytest.fixture
async def watched(nursery: trio.Nursery) -> FetchLane:
    readiness = Readiness()
    nursery.start_soon(readiness.run)
    return FetchLane("broker-2-fetcher-0", watcher=lambda: readiness)


async def test_steps_take_answers_until_one_that_they_leave_is_returned(
    nursery: trio.Nursery, watched: FetchLane
) -> None:
    answered: list[int] = []

    async def leader(stream: trio.SocketStream, frame: bytes) -> None:
        answered.append(int.from_bytes(frame[4:8], "big"))
        data = answer_to(frame, 8 if len(answered) == 5 else 9)
        await stream.send_all(data[:7])
        await wait_all_tasks_blocked()
        await stream.send_all(data[7:])

    async def hasty_leader(stream: trio.SocketStream, frame: bytes) -> None:
        answered.append(int.from_bytes(frame[4:8], "big"))
        await stream.send_all(answer_to(frame, 8 if len(answered) % 5 == 0 else 9))

    address, connections = await listening(nursery, hasty_leader)
    for begin in (0, 5):
        steps = CountingSteps()
        assert (await ask_in_steps(watched, address, steps)).session_id == 8
        assert steps.taken == 4
        assert answered == [*range(begin + 5)]
    assert len(connections) == 1
    # An answer in two pieces is left to the task, which waits for the rest.
    answered.clear()
    address, _ = await listening(nursery, leader)
    steps = CountingSteps()
    assert (await ask_in_steps(watched, address, steps)).session_id == 9
    assert steps.taken == 0
    watched.close()
    nursery.cancel_scope.cancel()


async def test_a_leader_that_hangs_up_during_steps_is_a_network_exception(
    nursery: trio.Nursery, watched: FetchLane
) -> None:
    count = 0

    async def leader(stream: trio.SocketStream, frame: bytes) -> None:
        nonlocal count
        count += 1
        if count % 3:
            await stream.send_all(answer_to(frame, 9))
        else:
            await stream.send_eof()

    address, connections = await listening(nursery, leader)
    for _ in range(2):
        steps = CountingSteps()
        with pytest.raises(BrokerError) as caught:
            await ask_in_steps(watched, address, steps)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
        assert steps.taken == 2
    assert len(connections) == 2
    nursery.cancel_scope.cancel()


async def test_an_error_of_a_step_is_raised_and_closes_the_connection(
    nursery: trio.Nursery, watched: FetchLane
) -> None:
    class FailingSteps(CountingSteps):
        def take(self, size_bytes: int) -> bytes | None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)

    async def leader(stream: trio.SocketStream, frame: bytes) -> None:
        await stream.send_all(answer_to(frame, 9))

    address, connections = await listening(nursery, leader)
    for _ in range(2):
        with pytest.raises(BrokerError) as caught:
            await ask_in_steps(watched, address, FailingSteps())
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(connections) == 2
    nursery.cancel_scope.cancel()


async def test_a_fetch_that_is_given_up_during_steps_closes_the_connection(
    nursery: trio.Nursery, watched: FetchLane
) -> None:
    requests: list[bytes] = []

    async def leader(stream: trio.SocketStream, frame: bytes) -> None:
        requests.append(frame)
        if len(requests) < 3:
            await stream.send_all(answer_to(frame, 9))
        else:
            watched.give_up()

    address, _ = await listening(nursery, leader)
    steps = CountingSteps()
    with pytest.raises(GivenUpError):
        await ask_in_steps(watched, address, steps)
    assert steps.taken == 2
    nursery.cancel_scope.cancel()
