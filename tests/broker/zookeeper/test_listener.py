"""The listener over real sockets: hostile clients, limits, sessions that end, monitoring commands."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, Id
from trio.testing import MockClock

from gregor.broker.config import BrokerConfig
from gregor.broker.config.listeners import ListenerError
from gregor.broker.zookeeper.listener import ZooKeeperListener, limits_of
from gregor.zookeeper.kafka_cluster import TopicPartition
from gregor.zookeeper.messages import OpCode
from tests.zookeeper.memory_cluster import MemoryCluster, topic_of

OPEN = [ACL(31, Id("world", "anyone"))]
IN_FLIGHT_S = 0.05
"""Real time for which no bytes may arrive before the clock jumps, as in the tests of the server."""
LONG_S = 60.0


@pytest.fixture
def clock() -> MockClock:
    """Return a clock that jumps ahead when all tasks wait, for tests that take it themselves."""
    return MockClock(autojump_threshold=IN_FLIGHT_S)


class Running:
    """A listener on a free port of loopback, in front of a cluster in memory."""

    def __init__(self, settings: dict[str, str]) -> None:
        address = {"gregor.zookeeper.listeners": "zookeeper://127.0.0.1:0"}
        self.cluster = MemoryCluster(known_topics={"t": topic_of([[1]])})
        self.listener = ZooKeeperListener(BrokerConfig({**address, **settings}))
        self._clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(await trio.open_tcp_stream("127.0.0.1", self.listener.bound[0].port))
        self._clients.append(client)
        return client

    async def disconnect_all(self) -> None:
        for client in self._clients:
            await trio.aclose_forcefully(client.stream)


class Client:
    """A client that sends and receives frames."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.received = b""

    async def send(self, frame: bytes) -> None:
        await self.stream.send_all(struct.pack(">i", len(frame)) + frame)

    async def frame(self) -> bytes | None:
        """Return the next frame, None at the end."""
        while len(self.received) < 4 or len(self.received) < 4 + struct.unpack(">i", self.received[:4])[0]:
            try:
                data = await self.stream.receive_some(1 << 20)
            except trio.BrokenResourceError:
                return None
            if not data:
                return None
            self.received += data
        end = 4 + struct.unpack(">i", self.received[:4])[0]
        frame, self.received = self.received[4:end], self.received[end:]
        return frame

    async def rest(self) -> bytes:
        """Return all bytes until the listener closes the connection."""
        rest = self.received
        try:
            async for data in self.stream:
                rest += data
        except trio.BrokenResourceError:
            pass
        return rest

    async def connect(self, timeout_ms: int = 10_000, session: tuple[int, bytes] = (0, bytes(16))) -> Any:
        await self.send(bytes(kazoo.Connect(0, 0, timeout_ms, *session, False).serialize()))
        frame = await self.frame()
        return None if frame is None else kazoo.Connect.deserialize(frame, 0)[0]

    async def request(self, xid: int, request: Any) -> None:
        await self.send(struct.pack(">ii", xid, request.type) + bytes(request.serialize()))

    async def reply(self) -> tuple[int, int]:
        """Return the xid and the error of the next frame."""
        frame = await self.frame()
        assert frame is not None
        header, _ = kazoo.ReplyHeader.deserialize(frame, 0)
        return header.xid, header.err

    async def ping(self) -> tuple[int, int]:
        await self.send(struct.pack(">ii", -2, OpCode.PING))
        return await self.reply()


@pytest.fixture
def settings() -> dict[str, str]:
    return {}


@pytest.fixture
async def running(settings: dict[str, str]) -> AsyncIterator[Running]:
    running = Running(settings)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.listener.run, running.cluster)
        yield running
        await running.disconnect_all()
        nursery.cancel_scope.cancel()


async def test_replies_are_in_order_and_a_session_moves(running: Running) -> None:
    first, second = await running.connect(), await running.connect()
    opened = await first.connect()
    assert opened.time_out == 10_000
    for xid in range(1, 40):
        await first.request(xid, kazoo.Exists("/brokers", None))
    assert [await first.reply() for _ in range(1, 40)] == [(xid, 0) for xid in range(1, 40)]
    await first.request(40, kazoo.Create("/e", b"", OPEN, 1))
    assert await first.reply() == (40, 0)
    moved = await second.connect(session=(opened.session_id, opened.passwd))
    assert moved.session_id == opened.session_id
    assert await first.frame() is None
    await second.request(1, kazoo.Exists("/e", None))
    assert await second.reply() == (1, 0)


async def test_a_connection_without_a_connect_request_is_closed(running: Running, clock: MockClock) -> None:
    silent = await running.connect()
    began = trio.current_time()
    assert await silent.rest() == b""
    # The session does not expire before the least session timeout.
    assert trio.current_time() - began >= 6


async def test_a_session_is_kept_by_pings_and_expires_after_its_timeout(running: Running, clock: MockClock) -> None:
    owner, watching = await running.connect(), await running.connect()
    opened = await owner.connect(timeout_ms=6000)
    await watching.connect(timeout_ms=60_000)
    await owner.request(1, kazoo.Create("/e", b"", OPEN, 1))
    assert await owner.reply() == (1, 0)
    await watching.request(1, kazoo.Exists("/e", True))
    assert await watching.reply() == (1, 0)
    for _ in range(10):
        await trio.sleep(5)
        assert await owner.ping() == (-2, 0)
        assert await watching.ping() == (-2, 0)
    assert await owner.frame() is None
    event = await watching.frame()
    assert event is not None
    assert event.endswith(struct.pack(">iii", 2, 3, 2) + b"/e")
    again = await running.connect()
    expired = await again.connect(session=(opened.session_id, opened.passwd))
    assert (expired.session_id, expired.time_out) == (0, 0)
    assert await again.frame() is None


async def test_a_session_outlives_a_lost_connection(running: Running, clock: MockClock) -> None:
    lost = await running.connect()
    opened = await lost.connect(timeout_ms=60_000)
    await lost.request(1, kazoo.Create("/e", b"", OPEN, 1))
    assert await lost.reply() == (1, 0)
    await lost.stream.aclose()
    await trio.sleep(30)
    again = await running.connect()
    assert (await again.connect(session=(opened.session_id, opened.passwd))).session_id == opened.session_id
    await again.request(1, kazoo.Exists("/e", None))
    assert await again.reply() == (1, 0)


async def test_a_request_that_waits_for_kafka_keeps_its_session_and_delays_no_other_client(
    running: Running, clock: MockClock
) -> None:
    async def wait_long() -> None:
        await trio.sleep(LONG_S)

    running.cluster.offsets["g"] = {TopicPartition("t", 0): 5}
    running.cluster.before_answers = wait_long
    waiting = await running.connect()
    await waiting.connect(timeout_ms=6000)
    await waiting.request(1, kazoo.GetData("/consumers/g/offsets/t/0", None))
    await waiting.send(struct.pack(">ii", -2, OpCode.PING))
    other = await running.connect()
    await other.connect()
    assert await other.ping() == (-2, 0)
    began = trio.current_time()
    assert await waiting.reply() == (1, 0)
    assert trio.current_time() - began >= LONG_S
    assert await waiting.reply() == (-2, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">i", 0x100000),
        struct.pack(">i", 0x7FFFFFFF) + b"x" * 100,
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 0),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
async def test_an_invalid_connect_request_closes_the_connection(running: Running, data: bytes) -> None:
    client = await running.connect()
    await client.stream.send_all(data)
    assert await client.rest() == b""
    healthy = await running.connect()
    assert (await healthy.connect()).session_id


@pytest.mark.parametrize("body", [b"", b"\0\0\0\1", struct.pack(">iii", 1, OpCode.GET_DATA, 1 << 30), b"\0" * 9])
async def test_an_invalid_request_closes_the_connection_after_earlier_replies(running: Running, body: bytes) -> None:
    client = await running.connect()
    await client.connect()
    await client.request(7, kazoo.Exists("/brokers", None))
    await client.send(body)
    assert await client.reply() == (7, 0)
    if len(body) == 9:
        # A request of type 0 is refused, but it is not malformed.
        assert await client.reply() == (0, -6)
    else:
        assert await client.frame() is None


@pytest.mark.parametrize("settings", [{"gregor.zookeeper.jute.maxbuffer": "2000"}])
async def test_the_size_of_a_request_is_limited(running: Running) -> None:
    client = await running.connect()
    await client.connect()
    await client.request(1, kazoo.Create("/a", b"x" * 1900, OPEN, 0))
    assert await client.reply() == (1, 0)
    await client.request(2, kazoo.SetData("/a", b"x" * 2000, -1))
    assert await client.frame() is None


@pytest.mark.parametrize("settings", [{"gregor.zookeeper.maxClientCnxns": "2"}, {"gregor.zookeeper.maxCnxns": "2"}])
async def test_connections_are_limited(running: Running) -> None:
    first, second = await running.connect(), await running.connect()
    await first.connect()
    await second.connect()
    third = await running.connect()
    assert await third.rest() == b""
    await second.stream.aclose()
    await first.ping()

    async def is_accepted() -> bool:
        client = await running.connect()
        try:
            return await client.connect() is not None
        except trio.BrokenResourceError:
            return False

    for _ in range(100):
        if await is_accepted():
            return
        await trio.sleep(0.01)
    pytest.fail("no connection is accepted after another one has ended")


async def test_the_send_buffer_of_a_client_that_reads_nothing_is_bounded_and_its_session_expires(
    running: Running, clock: MockClock
) -> None:
    greedy = await running.connect()
    await greedy.connect(timeout_ms=6000)
    await greedy.request(1, kazoo.Create("/big", b"x" * 1_000_000, OPEN, 0))
    assert await greedy.reply() == (1, 0)
    for xid in range(2, 200):
        await greedy.request(xid, kazoo.GetData("/big", None))
    connections = running.listener._connections
    await trio.sleep(1)
    assert sum(len(connection._outgoing) for connection in connections) < 2_000_000
    await trio.sleep(20)
    assert not connections


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (b"ruok", b"imok"),
        (b"mntr", b"mntr is not executed because it is not in the whitelist.\n"),
        (b"ruok\n", b"imok"),
    ],
)
async def test_four_letter_commands_are_answered(running: Running, word: bytes, answer: bytes) -> None:
    client = await running.connect()
    await client.stream.send_all(word)
    assert await client.rest() == answer


async def test_the_stat_command_lists_clients_and_counts(running: Running) -> None:
    client = await running.connect()
    await client.connect()
    await client.ping()
    asking = await running.connect()
    await asking.stream.send_all(b"stat")
    lines = (await asking.rest()).decode().splitlines()
    assert lines[0].startswith("Zookeeper version: 3.4.6-gregor-")
    assert lines[1] == "Clients:"
    assert {"Connections: 2", "Received: 1", "Mode: standalone"} <= set(lines)


async def test_metadata_changes_fire_watches_without_a_request(running: Running) -> None:
    client = await running.connect()
    await client.connect()
    await client.request(1, kazoo.GetChildren("/brokers/topics", True))
    await client.reply()
    running.cluster.put_topic("new", topic_of([[1]]))
    event = await client.frame()
    assert event is not None
    assert event.endswith(b"/brokers/topics")


async def test_a_client_that_speaks_tls_is_disconnected_and_the_log_says_so(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients of ZooKeeper 3.5 and later may be configured for TLS."""
    caplog.set_level("INFO")
    client = await running.connect()
    await client.stream.send_all(b"\x16\x03\x01\x02\x00\x01" + bytes(20))
    assert await client.rest() == b""
    assert "the client speaks TLS, which the addresses of gregor.zookeeper.listeners do not" in caplog.text


@pytest.mark.parametrize("address", ["http://127.0.0.1:0", "127.0.0.1:2181", "zookeeper://127.0.0.1:99999"])
def test_malformed_listener_addresses_are_refused(address: str) -> None:
    with pytest.raises(ListenerError, match=r"gregor\.zookeeper\.listeners"):
        ZooKeeperListener(BrokerConfig({"gregor.zookeeper.listeners": address}))


def test_several_addresses_are_opened_and_closed() -> None:
    both = "zookeeper://127.0.0.1:0,zookeeper://127.0.0.1:0"
    listener = ZooKeeperListener(BrokerConfig({"gregor.zookeeper.listeners": both}))
    assert len({endpoint.port for endpoint in listener.bound}) == 2
    listener.close()


def test_session_timeouts_follow_the_tick_unless_they_are_set() -> None:
    limits = limits_of(BrokerConfig({"gregor.zookeeper.tickTime": "2000"}))
    assert (limits.tick_ms, limits.min_session_timeout_ms, limits.max_session_timeout_ms) == (2000, 4000, 40_000)
    limits = limits_of(
        BrokerConfig({"gregor.zookeeper.minSessionTimeout": "500", "gregor.zookeeper.maxSessionTimeout": "90000"})
    )
    assert (limits.tick_ms, limits.min_session_timeout_ms, limits.max_session_timeout_ms) == (3000, 500, 90_000)
