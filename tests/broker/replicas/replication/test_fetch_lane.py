"""The connection of a follower to its leader, against correct and faulty leaders."""

from __future__ import annotations

import pytest
import trio

from gregor.broker.peers.peer_connection import Address
from gregor.broker.replicas.replication.fetch_lane import FetchLane
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
