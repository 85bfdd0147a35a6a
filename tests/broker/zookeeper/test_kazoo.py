"""A stock ZooKeeper client, kazoo, against the listener of a broker, and the broker's groups behind the same nodes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    UnimplementedError,
)

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from gregor.protocol.messages.offset_fetch import OffsetFetchRequest
from gregor.testing import Broker
from tests.free_ports import free_address
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

ADDRESS = free_address()
HOSTS = f"{ADDRESS[0]}:{ADDRESS[1]}"
Connect = Callable[[], KazooClient]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Provide a broker that serves ZooKeeper's protocol on `ADDRESS`, with a topic of two partitions."""
    settings = {"gregor.zookeeper.listeners": f"zookeeper://{HOSTS}", "gregor.zookeeper.minSessionTimeout": "1000"}
    with Broker(topics=["letters:2"], settings=settings) as running:
        yield running


@pytest.fixture
def connect(broker: Broker) -> Iterator[Connect]:
    """Provide a function that opens a session; sessions are closed at the end."""
    clients: list[KazooClient] = []

    def connected() -> KazooClient:
        client = KazooClient(hosts=HOSTS, timeout=10)
        client.start(PATIENCE_S)
        clients.append(client)
        return client

    yield connected
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def client(connect: Connect) -> KazooClient:
    return connect()


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire(("127.0.0.1", broker.port)) as connection:
        yield connection


class Events:
    """A watch function that counts its events, from kazoo's thread."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self._some = threading.Event()

    def __call__(self, event: Any) -> None:
        self.seen.append((event.type, event.path))
        self._some.set()

    def wait(self) -> list[tuple[str, str]]:
        """Return the events, once there is one."""
        assert self._some.wait(PATIENCE_S)
        return self.seen


def committed(wire: Wire, group: str) -> dict[tuple[str, int], int]:
    answer = wire.ask(ApiKey.OFFSET_FETCH, 2, OffsetFetchRequest(group_id=group, topics=None))
    return {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in answer.topics
        for partition in topic.partitions
    }


def commit(wire: Wire, group: str, topic: str, partition: int, offset: int) -> None:
    position = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[position])])
    answer = wire.ask(ApiKey.OFFSET_COMMIT, 2, request)
    assert answer.topics[0].partitions[0].error_code == 0


def test_nodes_have_versions_and_statistics(client: KazooClient) -> None:
    client.create("/v", b"0")
    first = client.exists("/v")
    assert (first.version, first.dataLength, first.numChildren, first.ephemeralOwner) == (0, 1, 0, 0)
    second = client.set("/v", b"11", version=0)
    assert (second.version, second.czxid, second.dataLength) == (1, first.czxid, 2)
    assert second.mzxid > first.mzxid
    with pytest.raises(BadVersionError):
        client.set("/v", b"2", version=0)
    client.create("/v/child", ephemeral=True)
    with pytest.raises(NoChildrenForEphemeralsError):
        client.create("/v/child/below")
    with pytest.raises(NotEmptyError):
        client.delete("/v")
    with pytest.raises(NodeExistsError):
        client.create("/v")
    data, third = client.get("/v")
    assert (data, third.cversion, third.numChildren) == (b"11", 1, 1)
    client.delete("/v", recursive=True)
    with pytest.raises(NoNodeError):
        client.get("/v")
    assert client.exists("/v") is None


def test_each_watch_fires_once_for_creation_data_children_or_deletion(connect: Connect) -> None:
    watching, changing = connect(), connect()
    created, data, children, gone = Events(), Events(), Events(), Events()
    assert watching.exists("/w", watch=created) is None
    changing.create("/w", b"")
    assert created.wait() == [("CREATED", "/w")]
    watching.get("/w", watch=data)
    watching.get_children("/w", watch=children)
    changing.set("/w", b"1")
    changing.set("/w", b"2")
    changing.create("/w/a")
    changing.create("/w/b")
    assert data.wait() == [("CHANGED", "/w")]
    assert children.wait() == [("CHILD", "/w")]
    watching.get("/w", watch=gone)
    changing.delete("/w", recursive=True)
    assert gone.wait() == [("DELETED", "/w")]


def test_an_event_comes_before_the_reply_that_shows_the_change(connect: Connect) -> None:
    """kazoo handles both in the order of arrival: when the second read returns, the watch function has been queued."""
    watching, changing = connect(), connect()
    changing.create("/order", b"0")
    for round_number in range(1, 50):
        events = Events()
        watching.get("/order", watch=events)
        changing.set("/order", str(round_number).encode())
        assert watching.get("/order")[0] == str(round_number).encode()
        assert events.wait() == [("CHANGED", "/order")]


def test_ephemeral_nodes_end_with_their_session(connect: Connect) -> None:
    owner, other = connect(), connect()
    events = Events()
    path = owner.create("/e-", sequence=True, ephemeral=True)
    assert path == f"/e-{int(path[3:]):010d}"
    assert other.exists(path, watch=events).ephemeralOwner == owner.client_id[0]
    owner.stop()
    assert events.wait() == [("DELETED", path)]
    assert other.exists(path) is None


def test_a_session_moves_to_another_connection(connect: Connect) -> None:
    client, other = connect(), connect()
    client.create("/moved", ephemeral=True)
    session = client.client_id
    # kazoo connects again without a call.
    client._connection._socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: client.retry(client.exists, "/moved") is not None)
    assert client.client_id == session
    assert other.exists("/moved").ephemeralOwner == session[0]


def test_a_multi_request_does_all_or_nothing(client: KazooClient) -> None:
    done = client.transaction()
    done.create("/m", b"0")
    done.set_data("/m", b"1")
    done.check("/m", 1)
    results = done.commit()
    assert results[0] == "/m"
    assert results[1].version == 1
    failed = client.transaction()
    failed.create("/m/a")
    failed.delete("/m/missing")
    failed.set_data("/m", b"lost")
    assert [type(result).__name__ for result in failed.commit()] == [
        "RolledBackError",
        "NoNodeError",
        "RuntimeInconsistency",
    ]
    assert client.get_children("/m") == []
    assert client.get("/m")[0] == b"1"


def test_access_control_lists_are_kept_and_not_enforced(client: KazooClient) -> None:
    client.add_auth("digest", "user:secret")
    client.create("/acl")
    acls, stat = client.get_acls("/acl")
    assert [(acl.perms, acl.id.scheme, acl.id.id) for acl in acls] == [(31, "world", "anyone")]
    assert client.set_acls("/acl", [acls[0]._replace(perms=1)], stat.aversion).aversion == 1
    client.set("/acl", b"still writable")
    assert client.sync("/acl") == "/acl"


def test_broker_and_topic_nodes_have_the_content_of_kafka_0_9_and_are_read_only(
    client: KazooClient, broker: Broker
) -> None:
    node = json.loads(client.get("/brokers/ids/1")[0])
    assert (node["host"], node["port"], node["version"]) == ("127.0.0.1", broker.port, 2)
    assert node["endpoints"] == [f"PLAINTEXT://127.0.0.1:{broker.port}"]
    assert json.loads(client.get("/controller")[0])["brokerid"] == 1
    assert client.get("/controller_epoch")[0] == b"1"
    assert json.loads(client.get("/brokers/topics/letters")[0]) == {"version": 1, "partitions": {"0": [1], "1": [1]}}
    assert client.get_children("/brokers/topics/letters/partitions") == ["0", "1"]
    state = json.loads(client.get("/brokers/topics/letters/partitions/1/state")[0])
    assert (state["leader"], state["isr"]) == (1, [1])
    for path in ("/brokers/ids/2", "/controller/x", "/brokers/topics/letters/partitions/2", "/zookeeper/x"):
        with pytest.raises(NoAuthError):
            client.create(path)
    with pytest.raises(NoAuthError):
        client.set("/controller", b"")
    with pytest.raises(NoAuthError):
        client.delete("/brokers/topics/letters/partitions/0/state")


def test_topics_made_with_kafkas_protocol_fire_watches(client: KazooClient, wire: Wire) -> None:
    events, topic = Events(), Events()
    client.get_children("/brokers/topics", watch=events)
    client.exists("/brokers/topics/fresh", watch=topic)
    created = CreateTopicsRequest(topics=[CreatableTopic(name="fresh", num_partitions=3, replication_factor=1)])
    wire.ask(ApiKey.CREATE_TOPICS, 2, created)
    assert events.wait() == [("CHILD", "/brokers/topics")]
    assert topic.wait() == [("CREATED", "/brokers/topics/fresh")]
    assert client.get_children("/brokers/topics/fresh/partitions") == ["0", "1", "2"]


def test_the_nodes_of_old_tools_create_alter_and_delete_topics(client: KazooClient, wire: Wire) -> None:
    """The steps of `kafka.admin.AdminUtils` of 0.8 and 0.9."""
    client.create("/config/topics/made", b'{"version":1,"config":{"retention.ms":"100000"}}')
    client.create("/brokers/topics/made", b'{"version":1,"partitions":{"1":[1],"0":[1]}}')
    assert json.loads(client.get("/config/topics/made")[0])["config"] == {"retention.ms": "100000"}
    with pytest.raises(NodeExistsError):
        client.create("/brokers/topics/made", b'{"version":1,"partitions":{"0":[1]}}')
    client.set("/brokers/topics/made", b'{"version":1,"partitions":{"0":[1],"1":[1],"2":[1]}}')
    assert len(client.get_children("/brokers/topics/made/partitions")) == 3
    client.set("/config/topics/made", b'{"version":1,"config":{"cleanup.policy":"compact"}}')
    assert json.loads(client.get("/config/topics/made")[0])["config"] == {"cleanup.policy": "compact"}
    with pytest.raises(UnimplementedError):
        client.set("/brokers/topics/made", b'{"version":1,"partitions":{"0":[2],"1":[1],"2":[1]}}')
    gone = Events()
    client.exists("/brokers/topics/made", watch=gone)
    client.create("/admin/delete_topics/made")
    assert gone.wait() == [("DELETED", "/brokers/topics/made")]
    assert client.exists("/config/topics/made") is None
    assert client.get_children("/admin/delete_topics") == []
    with pytest.raises(NoNodeError):
        client.create("/admin/delete_topics/made")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"partitions":{}}',
        b'{"partitions":{"1":[1]}}',
        b'{"partitions":{"0":[]}}',
        b'{"partitions":{"0":[true]}}',
        b'{"partitions":{"0":[-1]}}',
        b'{"partitions":{"0":[1]},"x":"\\ud800"}',
        b"[" * 100_000,
        b'{"partitions":{"0":[77]}}',
    ],
)
def test_bad_assignments_are_refused(client: KazooClient, data: bytes) -> None:
    with pytest.raises(BadArgumentsError):
        client.create("/brokers/topics/bad", data)
    assert client.exists("/brokers/topics/bad") is None


def test_offset_nodes_and_committed_offsets_of_a_group_are_the_same(client: KazooClient, wire: Wire) -> None:
    folder = "/consumers/both/offsets/letters"
    with pytest.raises(NoNodeError):
        client.set(f"{folder}/0", b"5")
    client.create(f"{folder}/0", b"5", makepath=True)
    assert committed(wire, "both") == {("letters", 0): 5}
    client.set(f"{folder}/0", b"6")
    assert committed(wire, "both") == {("letters", 0): 6}
    commit(wire, "both", "letters", 1, 40)
    assert client.get_children(folder) == ["0", "1"]
    assert client.get(f"{folder}/1")[0] == b"40"
    commit(wire, "both", "letters", 0, 7)
    data, stat = client.get(f"{folder}/0")
    assert (data, stat.version, stat.dataLength) == (b"7", 2, 1)
    with pytest.raises(BadVersionError):
        client.set(f"{folder}/0", b"9", version=1)
    assert committed(wire, "both")["letters", 0] == 7
    client.delete(f"{folder}/0")
    assert committed(wire, "both") == {("letters", 1): 40}
    client.delete("/consumers/both", recursive=True)
    assert committed(wire, "both") == {}
    assert client.exists("/consumers/both") is None


def test_a_group_that_commits_with_kafkas_protocol_has_nodes_under_consumers(client: KazooClient, wire: Wire) -> None:
    commit(wire, "modern", "letters", 0, 12)
    assert "modern" in client.get_children("/consumers")
    assert client.get_children("/consumers/modern") == ["offsets"]
    assert client.get_children("/consumers/modern/offsets") == ["letters"]
    assert client.get("/consumers/modern/offsets/letters/0")[0] == b"12"
    commit(wire, "modern", "letters", 0, 13)
    assert client.get("/consumers/modern/offsets/letters/0")[0] == b"13"
    with pytest.raises(NoNodeError):
        client.get("/consumers/modern/offsets/letters/1")
    assert client.exists("/consumers/other") is None


@pytest.mark.parametrize("data", [b"", b"-1", b"1.0", b"x", b"9223372036854775808", b"1" * 5000, "٣".encode()])
def test_values_that_are_no_offsets_are_refused(client: KazooClient, wire: Wire, data: bytes) -> None:
    client.ensure_path("/consumers/odd/offsets/letters")
    with pytest.raises(BadArgumentsError):
        client.create("/consumers/odd/offsets/letters/0", data)
    assert committed(wire, "odd") == {}


def test_offsets_of_unknown_partitions_are_refused(client: KazooClient) -> None:
    client.ensure_path("/consumers/odd/offsets/unknown")
    with pytest.raises(NoNodeError):
        client.create("/consumers/odd/offsets/unknown/0", b"1")
    client.ensure_path("/consumers/odd/offsets/letters")
    with pytest.raises(NoNodeError):
        client.create("/consumers/odd/offsets/letters/2", b"1")


def test_four_letter_commands_are_answered_for_kazoo(client: KazooClient) -> None:
    assert client.command(b"ruok") == "imok"
    assert "Mode: standalone" in client.command(b"srvr")
    assert "Clients:\n /127.0.0.1:" in client.command(b"stat")
    assert client.command(b"dump").startswith("dump is not executed")
    assert client.server_version()[:2] == (3, 4)
