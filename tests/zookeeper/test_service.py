"""Replies to requests: nodes of Kafka, nodes in memory, and refused requests."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from kazoo.protocol import serialization as kazoo
from kazoo.security import ACL, Id

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.zookeeper.jute import JuteError
from gregor.zookeeper.kafka_cluster import ClientAddress, PartitionView, TopicPartition, TopicView
from gregor.zookeeper.keeper_errors import KeeperCode, KeeperError
from gregor.zookeeper.limits import Limits
from gregor.zookeeper.messages import EventType, OpCode
from gregor.zookeeper.service import Reply, ZooKeeperService
from gregor.zookeeper.sessions import Session
from tests.zookeeper.memory_cluster import MemoryCluster, topic_of

OPEN = [ACL(31, Id("world", "anyone"))]
OFFSETS = "/consumers/g/offsets/t"
ADDRESS = ClientAddress(("10.0.0.9", 50_000), ("10.0.0.1", 2181))


@dataclass(eq=False)
class Client:
    """A connection that records the frames sent to it, with its session."""

    service: ZooKeeperService
    address: ClientAddress = ADDRESS
    events: list[tuple[EventType, str]] = field(default_factory=list)
    is_disconnected: bool = False
    session: Session | None = None

    def notify(self, event: EventType, path: str) -> None:
        self.events.append((event, path))

    def disconnect(self) -> None:
        self.is_disconnected = True

    def connect(self, timeout_ms: int = 10_000, session_id: int = 0, password: bytes = bytes(16)) -> Any:
        request = kazoo.Connect(0, 0, timeout_ms, session_id, password, False)
        reply, self.session = self.service.connect(bytes(request.serialize()), self)
        return kazoo.Connect.deserialize(reply.frame, 0)[0]

    async def send(self, op: int, body: bytes = b"") -> Reply | None:
        assert self.session is not None
        return await self.service.answer(struct.pack(">ii", 1, op) + body, self.session, self)

    async def ask(self, request: Any) -> Any:
        """Return the result of a request of kazoo's, or its error code."""
        reply = await self.send(request.type, bytes(request.serialize()))
        assert reply is not None
        header, position = kazoo.ReplyHeader.deserialize(reply.frame, 0)
        return KeeperCode(header.err) if header.err else request.deserialize(reply.frame, position)

    async def data(self, path: str) -> Any:
        """Return the JSON in a node."""
        return json.loads((await self.ask(kazoo.GetData(path, None)))[0])

    async def make(self, path: str, data: bytes = b"") -> Any:
        """Create a node and the missing ones above it."""
        names = path[1:].split("/")
        for end in range(1, len(names)):
            await self.ask(kazoo.Create("/" + "/".join(names[:end]), b"", OPEN, 0))
        return await self.ask(kazoo.Create(path, data, OPEN, 0))


class Clocks:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(known_topics={"t": topic_of([[1], [2, 1]])})


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def service(cluster: MemoryCluster, clocks: Clocks) -> ZooKeeperService:
    limits = Limits(tick_ms=1000, min_session_timeout_ms=2000, max_sessions=3, max_watches_per_session=5)
    return ZooKeeperService(cluster, limits, wall_clock_ms=clocks, monotonic_ms=clocks)


@pytest.fixture
def new_client(service: ZooKeeperService) -> Callable[[], Client]:
    def connected() -> Client:
        client = Client(service)
        assert client.connect().session_id
        return client

    return connected


@pytest.fixture
def client(new_client: Callable[[], Client]) -> Client:
    return new_client()


async def test_broker_nodes_have_the_advertised_address_for_each_client(client: Client) -> None:
    node = await client.data("/brokers/ids/2")
    assert (node["host"], node["port"], node["endpoints"]) == ("10.0.0.1", 9092, ["PLAINTEXT://10.0.0.1:9092"])
    data, stat = await client.ask(kazoo.GetData("/brokers/ids/2", None))
    assert stat.dataLength == len(data)
    client.address = ClientAddress(("::1", 1), ("::1", 2181))
    node = await client.data("/brokers/ids/1")
    assert (node["host"], node["endpoints"]) == ("::1", ["PLAINTEXT://[::1]:9091"])


async def test_metadata_is_shown_and_its_changes_fire_watches(client: Client, cluster: MemoryCluster) -> None:
    paths = ["/brokers/ids", "/brokers/topics"]
    for path in paths:
        await client.ask(kazoo.GetChildren(path, True))
    await client.ask(kazoo.GetData("/brokers/topics/t/partitions/1/state", True))
    await client.ask(kazoo.GetData("/brokers/topics/t", True))
    moved = PartitionView(1, 7, (2, 1), (1,))
    cluster.put_topic("t", TopicView((topic_of([[1]]).partitions[0], moved)))
    cluster.put_topic("new", topic_of([[2]]))
    cluster.broker_ids.remove(2)
    assert client.events == []
    client.service.refresh()
    assert sorted(client.events) == [
        (EventType.NODE_DATA_CHANGED, "/brokers/topics/t/partitions/1/state"),
        (EventType.NODE_CHILDREN_CHANGED, "/brokers/ids"),
        (EventType.NODE_CHILDREN_CHANGED, "/brokers/topics"),
    ]
    state = await client.data("/brokers/topics/t/partitions/1/state")
    assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 7, [1])
    cluster.put_topic("t", None)
    assert await client.ask(kazoo.Exists("/brokers/topics/t", None)) is KeeperCode.NONODE
    assert client.events[3:] == [(EventType.NODE_DELETED, "/brokers/topics/t")]


async def test_a_topic_deleted_and_created_again_has_its_new_partitions(client: Client, cluster: MemoryCluster) -> None:
    cluster.put_topic("t", topic_of([[2]]))
    assert (await client.data("/brokers/topics/t"))["partitions"] == {"0": [2]}
    assert await client.ask(kazoo.GetChildren("/brokers/topics/t/partitions", None)) == ["0"]


async def test_a_controller_that_is_unknown_has_no_node(client: Client, cluster: MemoryCluster) -> None:
    cluster.controller_id = -1
    cluster.changed()
    assert await client.ask(kazoo.Exists("/controller", None)) is KeeperCode.NONODE


async def test_creating_an_offset_node_commits_the_offset_for_the_client(
    client: Client, cluster: MemoryCluster
) -> None:
    await client.make(f"{OFFSETS}/0", b" 17\n")
    assert cluster.offsets == {"g": {TopicPartition("t", 0): 17}}
    assert set(cluster.clients) == {client.address}


async def test_offsets_that_kafka_has_dropped_have_no_nodes(client: Client, cluster: MemoryCluster) -> None:
    cluster.offsets["g"] = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 2}
    assert await client.ask(kazoo.GetChildren(OFFSETS, None)) == ["0", "1"]
    del cluster.offsets["g"][TopicPartition("t", 0)]
    assert await client.ask(kazoo.GetChildren(OFFSETS, None)) == ["1"]
    cluster.offsets.clear()
    assert await client.ask(kazoo.GetData(f"{OFFSETS}/1", None)) is KeeperCode.NONODE
    assert await client.ask(kazoo.Exists("/consumers/g", None)) is KeeperCode.NONODE
    assert await client.ask(kazoo.GetChildren("/consumers", None)) == []


async def test_groups_deleted_in_kafka_have_no_nodes_and_nodes_of_clients_stay(
    client: Client, cluster: MemoryCluster
) -> None:
    cluster.offsets = {"a": {}, "with/slash": {}, "..": {}, "": {}}
    await client.make("/consumers/own/ids")
    assert await client.ask(kazoo.GetChildren("/consumers", None)) == ["a", "own"]
    cluster.offsets.clear()
    assert await client.ask(kazoo.GetChildren("/consumers", None)) == ["own"]


async def test_a_watch_of_an_offset_fires_when_another_commit_is_seen(
    new_client: Callable[[], Client], cluster: MemoryCluster
) -> None:
    watching, reading = new_client(), new_client()
    cluster.offsets["g"] = {TopicPartition("t", 0): 1}
    await watching.ask(kazoo.GetData(f"{OFFSETS}/0", True))
    cluster.offsets["g"][TopicPartition("t", 0)] = 2
    assert (await reading.ask(kazoo.GetData(f"{OFFSETS}/0", None)))[0] == b"2"
    assert watching.events == [(EventType.NODE_DATA_CHANGED, f"{OFFSETS}/0")]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, KeeperCode.NOAUTH),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KeeperCode.NOAUTH),
        (ErrorCode.REQUEST_TIMED_OUT, KeeperCode.OPERATIONTIMEOUT),
        (ErrorCode.KAFKA_STORAGE_ERROR, KeeperCode.SYSTEMERROR),
    ],
)
async def test_kafka_errors_become_zookeeper_error_codes_and_change_no_node(
    client: Client, cluster: MemoryCluster, refusal: ErrorCode, code: KeeperCode
) -> None:
    await client.make(f"{OFFSETS}/0", b"1")
    zxid = client.service.tree.zxid
    cluster.refusal = BrokerError(refusal)
    for request in (
        kazoo.SetData(f"{OFFSETS}/0", b"2", -1),
        kazoo.Create(f"{OFFSETS}/1", b"2", OPEN, 0),
        kazoo.Delete(f"{OFFSETS}/0", -1),
        kazoo.GetData(f"{OFFSETS}/0", None),
        kazoo.GetChildren("/consumers", None),
        kazoo.Create("/brokers/topics/x", b'{"partitions":{"0":[1]}}', OPEN, 0),
    ):
        assert await client.ask(request) is code
    assert client.service.tree.zxid == zxid
    assert cluster.offsets == {"g": {TopicPartition("t", 0): 1}}


@pytest.mark.parametrize("flags", [1, 2, 3, 4])
async def test_an_ephemeral_sequential_or_container_offset_node_is_refused(
    client: Client, cluster: MemoryCluster, flags: int
) -> None:
    await client.make(OFFSETS)
    expected = KeeperCode.UNIMPLEMENTED if flags == 4 else KeeperCode.BADARGUMENTS
    assert await client.ask(kazoo.Create(f"{OFFSETS}/0", b"1", OPEN, flags)) is expected
    assert cluster.offsets == {}


async def test_offset_nodes_without_a_valid_partition_number_are_kept_in_memory(
    client: Client, cluster: MemoryCluster
) -> None:
    for name in ("01", "x", "-1", "4294967296"):
        assert await client.make(f"{OFFSETS}/{name}", b"anything") == f"{OFFSETS}/{name}"
    assert cluster.offsets == {}


async def test_an_ephemeral_topic_configuration_node_is_refused(client: Client) -> None:
    assert await client.ask(kazoo.Create("/config/topics/x", b"{}", OPEN, 1)) is KeeperCode.NOAUTH


async def test_topics_and_offsets_do_not_change_in_a_multi_request(client: Client, cluster: MemoryCluster) -> None:
    await client.make(f"{OFFSETS}/0", b"1")
    for write in (
        kazoo.SetData(f"{OFFSETS}/0", b"2", -1),
        kazoo.Delete(f"{OFFSETS}/0", -1),
        kazoo.Create("/brokers/topics/x", b'{"partitions":{"0":[1]}}', OPEN, 0),
    ):
        results = await client.ask(kazoo.Transaction([kazoo.Create("/a", b"", OPEN, 0), write]))
        assert [type(result).__name__ for result in results] == ["RolledBackError", "UnimplementedError"]
    assert await client.ask(kazoo.Exists("/a", None)) is KeeperCode.NONODE
    assert cluster.offsets == {"g": {TopicPartition("t", 0): 1}}


async def test_a_session_moves_and_its_earlier_connection_is_closed(
    new_client: Callable[[], Client], service: ZooKeeperService
) -> None:
    first, other = new_client(), new_client()
    assert first.session is not None
    await first.ask(kazoo.Create("/e", b"", OPEN, 1))
    second = Client(service)
    reply = second.connect(session_id=first.session.id, password=first.session.password)
    assert reply.session_id == first.session.id
    assert first.is_disconnected
    assert await first.send(OpCode.PING) is None
    service.disconnected(first.session, first)
    await second.ask(kazoo.GetData("/e", True))
    await other.ask(kazoo.SetData("/e", b"1", -1))
    assert second.events == [(EventType.NODE_DATA_CHANGED, "/e")]


@pytest.mark.parametrize("wrong", ["id", "password"])
def test_an_unknown_session_id_or_a_wrong_password_gets_an_expired_session(client: Client, wrong: str) -> None:
    session = client.session
    assert session is not None
    thief = Client(client.service)
    reply = thief.connect(
        session_id=session.id + (wrong == "id"), password=bytes(16) if wrong == "password" else session.password
    )
    assert (reply.session_id, reply.time_out, reply.passwd) == (0, 0, bytes(16))
    assert thief.session is None
    assert not client.is_disconnected


async def test_an_expired_session_deletes_its_ephemeral_nodes_and_closes_its_connection(
    new_client: Callable[[], Client], service: ZooKeeperService, clocks: Clocks
) -> None:
    quiet, busy = new_client(), new_client()
    await quiet.ask(kazoo.Create("/e", b"", OPEN, 1))
    await busy.ask(kazoo.Exists("/e", True))
    clocks.now_ms += 9000
    assert await busy.send(OpCode.PING) is not None
    clocks.now_ms += 2000
    service.expire_sessions()
    assert busy.events == [(EventType.NODE_DELETED, "/e")]
    assert quiet.is_disconnected
    assert not busy.is_disconnected
    assert await quiet.send(OpCode.PING) is None


async def test_set_watches_restores_watches_and_sends_missed_events(
    new_client: Callable[[], Client], service: ZooKeeperService
) -> None:
    client = new_client()
    for path in ("/same", "/changed", "/gone", "/parent"):
        await client.make(path)
    since = service.tree.zxid
    await client.ask(kazoo.SetData("/changed", b"1", -1))
    await client.ask(kazoo.Delete("/gone", -1))
    await client.make("/parent/child")
    await client.make("/new")

    def strings(*texts: str) -> bytes:
        return struct.pack(">i", len(texts)) + b"".join(struct.pack(">i", len(text)) + text.encode() for text in texts)

    body = strings("/same", "/changed", "/gone") + strings("/new", "/never") + strings("/parent", "/same", "/gone")
    reply = await client.send(OpCode.SET_WATCHES, struct.pack(">q", since) + body)
    assert reply is not None
    assert client.events == [
        (EventType.NODE_DATA_CHANGED, "/changed"),
        (EventType.NODE_DELETED, "/gone"),
        (EventType.NODE_CREATED, "/new"),
        (EventType.NODE_CHILDREN_CHANGED, "/parent"),
        (EventType.NODE_DELETED, "/gone"),
    ]
    client.events.clear()
    await client.ask(kazoo.SetData("/same", b"1", -1))
    await client.make("/same/child")
    await client.make("/never")
    assert client.events == [
        (EventType.NODE_DATA_CHANGED, "/same"),
        (EventType.NODE_CHILDREN_CHANGED, "/same"),
        (EventType.NODE_CREATED, "/never"),
    ]


async def test_closing_a_session_deletes_its_nodes_before_the_reply(new_client: Callable[[], Client]) -> None:
    client, other = new_client(), new_client()
    await client.ask(kazoo.Create("/e", b"", OPEN, 1))
    reply = await client.send(OpCode.CLOSE_SESSION)
    assert reply is not None
    assert reply.is_last
    assert await other.ask(kazoo.Exists("/e", None)) is KeeperCode.NONODE
    assert await client.send(OpCode.PING) is None


async def test_requests_over_a_limit_are_refused_and_the_session_is_kept(
    client: Client, service: ZooKeeperService
) -> None:
    for number in range(5):
        assert await client.ask(kazoo.Exists(f"/w{number}", True)) is KeeperCode.NONODE
    assert await client.ask(kazoo.Exists("/w5", True)) is KeeperCode.SYSTEMERROR
    assert await client.send(OpCode.PING) is not None
    for _ in range(2):
        Client(service).connect()
    with pytest.raises(KeeperError, match=r"max\.sessions"):
        Client(service).connect()


async def test_unimplemented_and_malformed_requests_are_refused(client: Client) -> None:
    reply = await client.send(16, b"?")
    assert reply is not None
    assert kazoo.ReplyHeader.deserialize(reply.frame, 0)[0].err == KeeperCode.UNIMPLEMENTED
    with pytest.raises(JuteError):
        await client.send(OpCode.GET_DATA, b"\x7f\xff\xff\xff")
    for path in ("", "relative", "/a/../b", "/\0"):
        assert await client.ask(kazoo.GetData(path, None)) is KeeperCode.BADARGUMENTS
    assert await client.ask(kazoo.Create("/", b"", OPEN, 0)) is KeeperCode.NODEEXISTS
    assert await client.ask(kazoo.Delete("/", -1)) is KeeperCode.NOAUTH


def test_transaction_ids_grow_across_restarts(cluster: MemoryCluster, clocks: Clocks) -> None:
    first = ZooKeeperService(cluster, Limits(), wall_clock_ms=clocks, monotonic_ms=clocks)
    for number in range(1000):
        first.tree.create(f"/{number}", None)
    clocks.now_ms += 1000
    second = ZooKeeperService(cluster, Limits(), wall_clock_ms=clocks, monotonic_ms=clocks)
    assert first.tree.zxid < second.tree.zxid < 1 << 63
