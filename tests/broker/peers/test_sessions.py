"""Lines to other nodes whose SASL sessions end (KIP-368), against a scripted node."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
import trio.testing

from gregor.broker.peers.peers import Line
from gregor.protocol.apis import ApiKey
from gregor.protocol.codec import encode
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.framing import LENGTH
from gregor.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from gregor.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from gregor.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from gregor.protocol.messages.sasl_handshake import SaslHandshakeResponse
from gregor.security.client_security import ClientSecurity
from tests.broker.authentication.secured_broker import PLAIN_MODULE
from tests.broker.peers.scripted_node import listening
from tests.waiting import PATIENCE_S

SESSION_MS = 10_000
SECURITY = ClientSecurity.from_properties(
    {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="broker" password="secret";',
    }
)
SERVED = [
    ApiVersion(api_key=ApiKey.HEARTBEAT, max_version=1),
    ApiVersion(api_key=ApiKey.SASL_HANDSHAKE, max_version=1),
    ApiVersion(api_key=ApiKey.SASL_AUTHENTICATE, max_version=1),
]


class SaslNode:
    """A node with sessions of `SESSION_MS`, which keeps Heartbeats unanswered while it holds them."""

    def __init__(self) -> None:
        self.asked: list[ApiKey] = []
        self.error = ErrorCode.NONE
        """The answer to SaslAuthenticate."""
        self.released = trio.Event()
        self.released.set()

    async def __call__(self, stream: trio.SocketStream, frame: bytes) -> None:
        key, version = ApiKey(int.from_bytes(frame[:2], "big")), int.from_bytes(frame[2:4], "big")
        self.asked.append(key)
        if key is ApiKey.API_VERSIONS:
            body = encode(ApiVersionsResponse(api_keys=SERVED), version)
        elif key is ApiKey.SASL_HANDSHAKE:
            body = encode(SaslHandshakeResponse(mechanisms=["PLAIN"]), version)
        elif key is ApiKey.SASL_AUTHENTICATE:
            response = SaslAuthenticateResponse(error_code=self.error, session_lifetime_ms=SESSION_MS)
            body = encode(response, version)
        else:
            await self.released.wait()
            body = encode(HeartbeatResponse(), version)
        with suppress(trio.BrokenResourceError):
            await stream.send_all(LENGTH.pack(4 + len(body)) + frame[4:8] + body)


LOGIN = [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE]


async def test_a_login_follows_requests_in_flight_and_precedes_later_ones(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    node = SaslNode()
    address, connections = await listening(nursery, node)
    line = Line("broker 1", "broker-2", lambda: SECURITY)

    async def beat(timeout_s: float = PATIENCE_S) -> None:
        await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=timeout_s, version=1)

    await beat()
    await trio.sleep(8)
    node.asked.clear()
    node.released = trio.Event()
    async with trio.open_nursery() as asking:
        asking.start_soon(beat)
        await trio.sleep(1.9)
        for _ in range(3):
            asking.start_soon(beat)
        await trio.sleep(0.05)
        node.released.set()
    assert node.asked == [ApiKey.HEARTBEAT, ApiKey.API_VERSIONS, *LOGIN, *[ApiKey.HEARTBEAT] * 3]
    # A session that has ended while nothing was sent does not end the connection either.
    await trio.sleep(60)
    await beat()
    assert node.asked[-3:] == [*LOGIN, ApiKey.HEARTBEAT]
    assert (len(connections), line.connection_count) == (1, 1)
    line.close("the test is over")
    nursery.cancel_scope.cancel()


async def test_a_refused_login_closes_the_connection(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    node = SaslNode()
    address, connections = await listening(nursery, node)
    line = Line("broker 1", "broker-2", lambda: SECURITY)
    await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S, version=1)
    await trio.sleep(9.9)
    node.error = ErrorCode.SASL_AUTHENTICATION_FAILED
    for _ in range(2):
        # The first time on the live connection, then on a new one.
        with pytest.raises(BrokerError, match="SASL_AUTHENTICATION_FAILED"):
            await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S, version=1)
    node.error = ErrorCode.NONE
    await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S, version=1)
    assert len(connections) == 3
    line.close("the test is over")
    nursery.cancel_scope.cancel()


async def test_a_login_that_takes_too_long_closes_the_connection(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    node = SaslNode()
    address, connections = await listening(nursery, node)
    line = Line("broker 1", "broker-2", lambda: SECURITY)
    await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S, version=1)
    await trio.sleep(8)
    node.released = trio.Event()
    failed: list[ErrorCode] = []

    async def beat(timeout_s: float) -> None:
        try:
            await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=timeout_s, version=1)
        except BrokerError as error:
            failed.append(error.code)

    async with trio.open_nursery() as asking:
        asking.start_soon(beat, 60)
        await trio.sleep(1.9)
        asking.start_soon(beat, 2)
    assert sorted(failed) == sorted([ErrorCode.NETWORK_EXCEPTION, ErrorCode.BROKER_NOT_AVAILABLE])
    node.released.set()
    await line.ask(address, HeartbeatRequest(), HeartbeatResponse, timeout_s=PATIENCE_S, version=1)
    assert len(connections) == 2
    line.close("the test is over")
    nursery.cancel_scope.cancel()
