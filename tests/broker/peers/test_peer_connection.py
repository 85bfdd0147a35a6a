"""Requests of several tasks over one connection to a node, against correct and faulty nodes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from gregor.broker.peers.peer_connection import PeerConnection, connect
from gregor.broker.peers.peers import Line, RemoteController
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.framing import LENGTH
from gregor.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from gregor.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gregor.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.broker.peers.scripted_node import OnRequest, listening
from tests.waiting import PATIENCE_S

VERSION = 1
SERVED = [ApiVersion(api_key=ApiKey.HEARTBEAT, max_version=2)]


def answer_to(frame: bytes) -> bytes:
    """Return the answer to a Heartbeat, with its correlation id as the error code, or to ApiVersions."""
    if int.from_bytes(frame[:2], "big") == ApiKey.API_VERSIONS:
        body = encode(ApiVersionsResponse(api_keys=SERVED), int.from_bytes(frame[2:4], "big"))
    else:
        body = encode(HeartbeatResponse(error_code=int.from_bytes(frame[4:8], "big")), VERSION)
    return LENGTH.pack(4 + len(body)) + frame[4:8] + body


async def answer(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_all(answer_to(frame))


async def hang_up(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_eof()


async def keep_silent(stream: trio.SocketStream, frame: bytes) -> None:
    pass


async def answer_nonsense(stream: trio.SocketStream, frame: bytes) -> None:
    await stream.send_all(LENGTH.pack(5) + frame[4:8] + b"\xff")


class Held:
    """A node that answers all requests with one write when `release` is called."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.arrived = trio.lowlevel.ParkingLot()

    async def __call__(self, stream: trio.SocketStream, frame: bytes) -> None:
        self.frames.append(frame)
        self.arrived.unpark_all()

    async def wait_for(self, count: int) -> None:
        while len(self.frames) < count:
            await self.arrived.park()

    async def release(self, stream: trio.SocketStream, count: int) -> None:
        due, self.frames = self.frames[:count], self.frames[count:]
        await stream.send_all(b"".join(map(answer_to, due)))


@asynccontextmanager
async def connected(on_request: OnRequest) -> AsyncIterator[tuple[PeerConnection, list[trio.SocketStream]]]:
    async with trio.open_nursery() as nursery:
        address, connections = await listening(nursery, on_request)
        connection = await connect("broker 1", address, "broker-2")
        with trio.fail_after(PATIENCE_S):
            yield connection, connections
        connection.close("the test is over")
        nursery.cancel_scope.cancel()


async def beat(connection: PeerConnection, group_id: str = "") -> int:
    request = HeartbeatRequest(group_id=group_id)
    return (await connection.request(request, HeartbeatResponse, version=VERSION)).error_code


async def test_tasks_get_their_own_answers_in_the_order_of_their_calls() -> None:
    answers: dict[int, int] = {}

    async def ask(connection: PeerConnection, number: int) -> None:
        answers[number] = await beat(connection)

    async with connected(answer) as (connection, connections):
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(ask, connection, number)
        assert sorted(answers.values()) == list(range(20))
        assert len(connections) == 1


LARGE = ListGroupsRequest(states_filter=["s" * 30_000] * 500)
"""A request that no socket takes with one call."""


async def test_large_requests_are_written_whole_and_in_order() -> None:
    sizes: list[int] = []

    async def note(stream: trio.SocketStream, frame: bytes) -> None:
        sizes.append(len(frame) // 1_000_000)
        body = encode(ListGroupsResponse(), 4) if len(frame) > 1_000 else encode(HeartbeatResponse(), VERSION)
        header = frame[4:8] + b"\0" * (len(frame) > 1_000)
        await stream.send_all(LENGTH.pack(len(header) + len(body)) + header + body)

    async def ask_large(connection: PeerConnection) -> None:
        await connection.request(LARGE, ListGroupsResponse, version=4)

    async with connected(note) as (connection, _):
        async with trio.open_nursery() as nursery:
            for ask in (ask_large, beat, ask_large, beat):
                nursery.start_soon(ask, connection)
                await trio.testing.wait_all_tasks_blocked()
        assert sizes == [15, 0, 15, 0]


async def test_a_request_that_was_written_in_part_ends_the_connection() -> None:
    async def ask_large(connection: PeerConnection, scope: trio.CancelScope) -> None:
        with scope:
            await connection.request(LARGE, ListGroupsResponse, version=4)

    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    connection = await connect("broker 1", listener.socket.getsockname(), "broker-2")
    async with listener, trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(2)]
        for scope in scopes:
            nursery.start_soon(ask_large, connection, scope)
            await trio.testing.wait_all_tasks_blocked()
        scopes[1].cancel()
        nursery.start_soon(until_cancelled, scopes[0])
        with pytest.raises(BrokerError, match="written in part"):
            await beat(connection)
        assert not connection.is_open()


async def until_cancelled(scope: trio.CancelScope) -> None:
    """Cancel the task that writes, once all tasks wait."""
    await trio.testing.wait_all_tasks_blocked()
    scope.cancel()


@pytest.mark.parametrize("cancelled", [0, 1, 2])
async def test_cancelling_one_wait_does_not_affect_other_requests(cancelled: int) -> None:
    node = Held()
    scopes = [trio.CancelScope() for _ in range(3)]
    answers: dict[int, int] = {}

    async def ask(connection: PeerConnection, number: int) -> None:
        with scopes[number]:
            answers[number] = await beat(connection)

    async with connected(node) as (connection, connections):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(ask, connection, number)
                await node.wait_for(number + 1)
            scopes[cancelled].cancel()
            await trio.testing.wait_all_tasks_blocked()
            await node.release(connections[0], 1)
            await node.release(connections[0], 2)
        assert answers == {number: number for number in range(3) if number != cancelled}
        assert connection.is_open()


@pytest.mark.parametrize("on_request", [hang_up, answer_nonsense])
async def test_a_lost_connection_or_a_malformed_answer_fails_all_waiting_requests(on_request: OnRequest) -> None:
    errors: list[BrokerError] = []

    async def ask(connection: PeerConnection) -> None:
        try:
            await beat(connection)
        except BrokerError as error:
            errors.append(error)

    async with connected(on_request) as (connection, _):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask, connection)
        assert [error.code for error in errors] == [ErrorCode.NETWORK_EXCEPTION] * 3
        assert not connection.is_open()
        with pytest.raises(BrokerError, match="broker 1"):
            await beat(connection)


async def test_a_connection_that_the_other_side_closed_while_unused_is_not_open() -> None:
    async with connected(answer) as (connection, connections):
        await beat(connection)
        assert connection.is_open()
        await connections[0].aclose()
        while connection.is_open():
            await trio.lowlevel.checkpoint()


# --- lines ---


async def test_a_line_negotiates_once_for_each_connection(nursery: trio.Nursery) -> None:
    asked: list[int] = []

    async def note(stream: trio.SocketStream, frame: bytes) -> None:
        asked.append(int.from_bytes(frame[:2], "big"))
        await answer(stream, frame)

    address, connections = await listening(nursery, note)
    line = Line("broker 1", "broker-2")
    for _ in range(2):
        await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S, version=VERSION)
        await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S)
    assert asked == [ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, *[ApiKey.HEARTBEAT] * 3]
    with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
        await line.ask(address, ListGroupsRequest(), ListGroupsResponse, timeout_s=PATIENCE_S)
    assert (len(connections), line.connection_count) == (1, 1)
    line.close("the test is over")
    nursery.cancel_scope.cancel()


async def test_a_line_is_opened_again_after_any_failure(nursery: trio.Nursery) -> None:
    address, connections = await listening(nursery, hang_up)
    line = Line("broker 1", "broker-2")
    for _ in range(2):
        with pytest.raises(BrokerError) as caught:
            await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    other, others = await listening(nursery, answer)
    await line.ask(other, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S)
    assert (len(connections), len(others), line.connection_count) == (2, 1, 3)
    line.close("the test is over")
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("version", [VERSION, None])
async def test_a_request_without_an_answer_fails_after_its_timeout(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, version: int | None
) -> None:
    address, _ = await listening(nursery, keep_silent)
    line = Line("broker 1", "broker-2")
    with pytest.raises(BrokerError, match="no answer") as caught:
        await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=5, version=version)
    assert caught.value.code is (ErrorCode.NETWORK_EXCEPTION if version else ErrorCode.BROKER_NOT_AVAILABLE)
    assert trio.current_time() >= 5
    nursery.cancel_scope.cancel()


async def test_requests_to_a_remote_controller_are_refused_while_its_task_does_not_run(nursery: trio.Nursery) -> None:
    address, connections = await listening(nursery, answer)
    controller = RemoteController(address, "broker-2")
    refused = []
    for is_running in (False, True, False):
        async with trio.open_nursery() as running:
            if is_running:
                await running.start(controller.run)
            try:
                await controller.ask_once(HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S)
            except BrokerError as error:
                refused.append(error.code)
            running.cancel_scope.cancel()
    assert refused == [ErrorCode.BROKER_NOT_AVAILABLE] * 2
    assert len(connections) == 1
    nursery.cancel_scope.cancel()
