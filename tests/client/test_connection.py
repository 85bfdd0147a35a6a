"""One connection against a broker of a few lines, over memory: order, deadlines, lost and malformed answers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
import trio
from trio.testing import memory_stream_pair

from gregor.client.config import AdminConfig
from gregor.client.errors import ConnectionLostError
from gregor.client.metrics import Metrics
from gregor.client.wire.connection import Connection
from gregor.client.wire.pending_answer import PendingAnswer
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.framing import FrameReader
from gregor.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from gregor.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gregor.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

Answerer = Callable[[trio.abc.Stream, int, int], Awaitable[None]]

VERSIONS = [ApiVersion(api_key=ApiKey.HEARTBEAT, max_version=1), ApiVersion(api_key=ApiKey.API_VERSIONS, max_version=3)]


def answer(correlation_id: int, body: bytes) -> bytes:
    return (len(body) + 4).to_bytes(4, "big") + correlation_id.to_bytes(4, "big") + body


async def serve(stream: trio.abc.Stream, on_request: Answerer, *, newest_api_versions: int = 3) -> None:
    """Answer ApiVersions, and leave all else to `on_request(stream, api_key, correlation_id)`."""
    reader = FrameReader(1 << 20)
    async for data in stream:
        reader.feed(data)
        while (frame := reader.next_frame()) is not None:
            key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
            correlation_id = int.from_bytes(frame[4:8], "big")
            if key != ApiKey.API_VERSIONS:
                await on_request(stream, key, correlation_id)
            elif version > newest_api_versions:
                refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=VERSIONS)
                await stream.send_all(answer(correlation_id, encode(refusal, 0)))
            else:
                body = encode(ApiVersionsResponse(api_keys=VERSIONS), version)
                await stream.send_all(answer(correlation_id, body))


@asynccontextmanager
async def connected(
    on_request: Answerer, *, newest_api_versions: int = 3, **config: object
) -> AsyncIterator[Connection]:
    ours, theirs = memory_stream_pair()
    connection = Connection(ours, "node-1", AdminConfig.from_properties(config), Metrics())
    async with trio.open_nursery() as nursery:

        async def run_server() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await serve(theirs, on_request, newest_api_versions=newest_api_versions)

        nursery.start_soon(run_server)
        await nursery.start(connection.run)
        yield connection
        nursery.cancel_scope.cancel()


async def beat(stream: trio.abc.Stream, key: int, correlation_id: int) -> None:
    await stream.send_all(answer(correlation_id, encode(HeartbeatResponse(), 1)))


async def silence(stream: trio.abc.Stream, key: int, correlation_id: int) -> None:
    pass


async def test_requests_are_pipelined_and_matched_in_order() -> None:
    async with connected(beat) as connection:
        waiting = [connection.submit(HeartbeatRequest(group_id=str(n)), HeartbeatResponse) for n in range(50)]
        assert connection.in_flight_count == 50
        for pending in reversed(waiting):
            assert (await pending.wait()).error_code == 0
        assert connection.in_flight_count == 0


@pytest.mark.parametrize("newest", [0, 3])
async def test_api_versions_is_retried_in_version_0_with_old_brokers(newest: int) -> None:
    async with connected(beat, newest_api_versions=newest) as connection:
        assert connection.versions.version(ApiKey.HEARTBEAT) == 1
        with pytest.raises(BrokerError, match="UNSUPPORTED_VERSION"):
            await connection.request(ListGroupsRequest(), ListGroupsResponse)


async def test_a_pinned_api_version_limits_the_request_versions() -> None:
    async with connected(beat, api_version="0.9") as connection:
        assert connection.versions.version(ApiKey.HEARTBEAT) == 0
        assert ApiKey.CREATE_TOPICS not in connection.versions


@pytest.mark.parametrize("accepted", [0, 1, 7, 10_000])
async def test_requests_keep_their_order_when_the_system_takes_a_part_of_what_is_flushed(accepted: int) -> None:
    ours, theirs = (trio.SocketStream(end) for end in trio.socket.socketpair())
    connection = Connection(ours, "node-1", AdminConfig.from_properties({}), Metrics())
    send_now = connection._bytes.send_now
    connection._bytes.send_now = lambda data: send_now(data[:accepted]) if accepted else 0  # type: ignore[method-assign]
    arrived: list[PendingAnswer[HeartbeatResponse]] = []
    async with trio.open_nursery() as nursery:

        async def run_server() -> None:
            with suppress(trio.ClosedResourceError):
                await serve(theirs, beat)

        nursery.start_soon(run_server)
        await nursery.start(connection.run)
        body = encode(HeartbeatRequest(group_id="g"), 1)
        for count in (1, 3):
            for _ in range(count):
                now = trio.current_time()
                connection.submit_encoded(ApiKey.HEARTBEAT, 1, [body], HeartbeatResponse, arrived.append, now)
            connection.flush()
            await connection.request(HeartbeatRequest(), HeartbeatResponse)
        assert [pending.result().error_code for pending in arrived] == [0] * 4
        await theirs.aclose()
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            await connection.request(HeartbeatRequest(), HeartbeatResponse)
        nursery.cancel_scope.cancel()


async def test_a_connection_cut_in_mid_response_fails_all_requests_in_flight() -> None:
    async def cut(stream: trio.abc.Stream, key: int, correlation_id: int) -> None:
        await stream.send_all(answer(correlation_id, encode(HeartbeatResponse(), 1))[:7])
        await stream.aclose()

    async with connected(cut) as connection:
        waiting = [connection.submit(HeartbeatRequest(), HeartbeatResponse) for _ in range(3)]
        for pending in waiting:
            with pytest.raises(ConnectionLostError, match="closed the connection"):
                await pending.wait()
        assert connection.is_closed
        with pytest.raises(ConnectionLostError):
            connection.submit(HeartbeatRequest(), HeartbeatResponse)


async def test_no_answer_in_time_ends_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    async with connected(silence, request_timeout_ms=5_000) as connection:
        with pytest.raises(ConnectionLostError, match="no answer to HEARTBEAT within 5000 ms"):
            await connection.request(HeartbeatRequest(), HeartbeatResponse)
        assert trio.current_time() >= 5
        assert connection.is_closed


async def test_an_idle_connection_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    async with connected(silence, connections_max_idle_ms=1_000) as connection:
        await trio.sleep(2)
        assert connection.is_closed


async def test_cancelling_one_request_leaves_the_others_alone() -> None:
    released = trio.Event()

    async def later(stream: trio.abc.Stream, key: int, correlation_id: int) -> None:
        await released.wait()
        await beat(stream, key, correlation_id)

    async with connected(later) as connection:
        with trio.move_on_after(0):
            await connection.request(HeartbeatRequest(), HeartbeatResponse)
        second = connection.submit(HeartbeatRequest(), HeartbeatResponse)
        released.set()
        assert (await second.wait()).error_code == 0


@pytest.mark.parametrize(
    "nonsense",
    [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02ab", answer(99, b"\x00\x00"), b"\x00\x00\x00\x00"],
    ids=["negative length", "no room for a header", "wrong correlation id", "empty"],
)
async def test_a_malformed_frame_or_wrong_correlation_id_closes_the_connection(nonsense: bytes) -> None:
    async def talk(stream: trio.abc.Stream, key: int, correlation_id: int) -> None:
        await stream.send_all(nonsense)

    async with connected(talk) as connection:
        with pytest.raises(ConnectionLostError, match=r"malformed|closed the connection"):
            await connection.request(HeartbeatRequest(), HeartbeatResponse)


async def test_a_malformed_body_ends_the_connection() -> None:
    async def talk(stream: trio.abc.Stream, key: int, correlation_id: int) -> None:
        await stream.send_all(answer(correlation_id, b"\x00"))

    async with connected(talk) as connection:
        with pytest.raises(ConnectionLostError, match="malformed HEARTBEAT answer"):
            await connection.request(HeartbeatRequest(), HeartbeatResponse)
