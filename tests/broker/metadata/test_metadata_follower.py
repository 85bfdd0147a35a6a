"""A broker that follows the controller's metadata log: equal state, also after losses on either side."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from gregor.broker.config import BrokerConfig
from gregor.broker.metadata.changes import MetadataChange, PartitionsAdded, TopicConfigChanged, TopicDeleted
from gregor.broker.metadata.state import ResourceType
from gregor.broker.metadata.store import MetadataStore
from gregor.broker.node.metadata_fetch import handle_fetch_metadata, handle_fetch_snapshot
from gregor.broker.peers.metadata_follower import FETCH_VERSION, ControllerBehindError, MetadataFollower
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.internal_topics import CLUSTER_METADATA
from gregor.protocol.messages.cluster_metadata_records import RegisterBrokerRecord
from gregor.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from gregor.protocol.messages.fetch import FetchRequest
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log_manager import LogManager

CONTROLLER = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.quorum.voters": "1@localhost:9093",
}
BROKER = {**CONTROLLER, "node.id": "2", "process.roles": "broker", "listeners": "PLAINTEXT://:9092"}


class Node:
    """A node's metadata, in a directory of its own."""

    def __init__(self, directory: Path, settings: dict[str, str], cluster_id: str = "the-cluster") -> None:
        self.config = BrokerConfig(settings)
        self.logs = LogManager(
            [str(directory)], LogConfig(), ManualClock(1000), node_id=self.config.node_id, cluster_id=cluster_id
        )
        self.logs.open_all()
        self.store = MetadataStore(self.config, ManualClock(1000))
        self.store.open(self.logs)
        self.changes: list[MetadataChange] = []
        self.store.subscribe(self.changes.append)

    def close(self) -> None:
        self.logs.close()


class Link:
    """A link to a controller that may be unreachable; it calls the controller's handlers with unencoded messages."""

    def __init__(self, controller: Node) -> None:
        self.controller = controller
        self.is_cut = False
        self.has_read: list[tuple[int, int]] = []
        self.connection_count = 1

    async def ask_once(self, request: Any, response: type, *, timeout_s: float, version: int | None = None) -> Any:
        await trio.lowlevel.checkpoint()
        self._check()
        controller = SimpleNamespace(has_read=lambda *read: self.has_read.append(read))
        services = SimpleNamespace(metadata=self.controller.store, node=SimpleNamespace(controller_here=controller))
        context: Any = SimpleNamespace(services=services, api_version=FETCH_VERSION)
        if isinstance(request, DescribeClusterRequest):
            return DescribeClusterResponse(cluster_id=self.controller.store.cluster_id)
        if isinstance(request, FetchRequest):
            assert version == FETCH_VERSION
            answer: Any = await handle_fetch_metadata(request, context)
        else:
            answer = handle_fetch_snapshot(request, context)
        # Responses may be lost as well as requests.
        self._check()
        return answer

    def _check(self) -> None:
        if self.is_cut:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "away")


@pytest.fixture
def controller(tmp_path: Path) -> Node:
    node = Node(tmp_path / "controller", CONTROLLER)
    register(node)
    return node


def register(node: Node) -> None:
    for node_id in (1, 2):
        node.store.commit([RegisterBrokerRecord(broker_id=node_id, incarnation_id=UUID(int=node_id), fenced=False)])


@asynccontextmanager
async def following(node: Node, link: Link) -> AsyncIterator[None]:
    """Follow the controller for the length of a block, which begins once the follower has caught up."""
    follower = MetadataFollower(node.store, link, timeout_s=2, retry_backoff_s=0.01)
    async with trio.open_nursery() as nursery:
        await nursery.start(follower.run)
        yield
        nursery.cancel_scope.cancel()


async def caught_up(node: Node, link: Link) -> None:
    while node.store.end_offset < link.controller.store.end_offset:
        await node.store.wait_for_growth()


def assert_same(one: Node, other: Node) -> None:
    assert list(map(repr, one.store.state.records())) == list(map(repr, other.store.state.records()))
    assert one.store.end_offset == other.store.end_offset


async def test_a_broker_replicates_the_metadata_of_the_controller(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock
) -> None:
    controller.store.create_topic("before", partitions=3, replication_factor=2)
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    async with following(broker, link):
        assert_same(broker, controller)
        broker.changes.clear()
        topic = controller.store.create_topic("during", partitions=2)
        controller.store.set_configs(ResourceType.TOPIC, "before", {"retention.ms": "5"})
        controller.store.delete_topic("before")
        await caught_up(broker, link)
        assert_same(broker, controller)
        await trio.sleep(1)
        assert link.has_read[-1] == (2, controller.store.end_offset)
    kinds = [type(change) for change in broker.changes]
    assert kinds == [PartitionsAdded, TopicConfigChanged, TopicDeleted]
    assert broker.store.topics["during"].topic_id == topic.topic_id


async def test_a_follower_starts_with_the_metadata_on_its_disk(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock
) -> None:
    controller.store.create_topic("a")
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    async with following(broker, link):
        pass
    broker.close()
    again = Node(tmp_path / "broker", BROKER)
    assert_same(again, controller)


async def test_a_follower_refuses_changes_of_metadata(tmp_path: Path) -> None:
    broker = Node(tmp_path / "broker", BROKER)
    with pytest.raises(BrokerError) as refused:
        broker.store.create_topic("a", assignments=[(0, [2])])
    assert refused.value.code in (ErrorCode.NOT_CONTROLLER, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert broker.store.end_offset == 0


async def test_a_follower_continues_at_its_offset_when_the_controller_is_back(
    tmp_path: Path,
    controller: Node,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    async with following(broker, link):
        link.is_cut = True
        controller.store.create_topic("unseen")
        await trio.sleep(30)
        assert "unseen" not in broker.store.topics
        link.is_cut = False
        await caught_up(broker, link)
        assert "unseen" in broker.store.topics
        await trio.sleep(1)
    told = [message for message in caplog.messages if "follow" in message]
    assert told == [
        "cannot follow the controller, continuing with old metadata: away",
        "following the controller again, from offset 6",
    ]


def restored(tmp_path: Path, controller: Node, link: Link) -> Node:
    """Start the controller again from the copy of its directory that `copied` made; return it."""
    controller.close()
    shutil.rmtree(tmp_path / "controller")
    shutil.copytree(tmp_path / "copy", tmp_path / "controller")
    link.is_cut = False
    link.controller = Node(tmp_path / "controller", CONTROLLER)
    link.connection_count += 1
    return link.controller


def copied(tmp_path: Path) -> None:
    """Copy the controller's directory, as an operator does."""
    shutil.copytree(tmp_path / "controller", tmp_path / "copy")


@pytest.mark.parametrize("grows", [0, 1, 30])
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_controller_with_an_older_metadata_log_is_not_followed_and_no_metadata_is_lost(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock, grows: int, is_running: bool
) -> None:
    """This holds also if the controller has begun an epoch of the same number and has more records than the broker."""
    controller.store.create_topic("kept")
    controller.close()
    copied(tmp_path)
    controller = Node(tmp_path / "controller", CONTROLLER)
    controller.store.create_topic("later", partitions=4)
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    known = controller.store.end_offset
    with pytest.RaisesGroup(ControllerBehindError) as told, trio.fail_after(60):
        async with following(broker, link):
            broker.changes.clear()
            link.is_cut = True
            await trio.sleep(1)
            before = list(map(repr, broker.store.state.records()))
            older = restored(tmp_path, controller, link)
            for number in range(grows):
                older.store.create_topic(f"other-{number}")
            if is_running:
                await trio.sleep_forever()
        async with following(broker, link):
            pass
    assert list(map(repr, broker.store.state.records())) == before
    assert (broker.store.end_offset, broker.changes) == (known, [])
    (error,) = told.value.exceptions
    assert "gregor metadata recover" in str(error)
    assert "\n" not in str(error)


async def test_a_controller_whose_snapshot_ends_earlier_is_not_followed(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock
) -> None:
    copied(tmp_path)
    controller.store.create_topic("later", partitions=50)
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    async with following(broker, link):
        pass
    older = restored(tmp_path, controller, link)
    older.store.create_topic("other")
    older.store.log.write_snapshot(older.store.state.records())
    with pytest.RaisesGroup(ControllerBehindError):
        async with following(broker, link):
            pass
    assert "later" in broker.store.topics


@pytest.mark.parametrize("knew_something", [False, True])
async def test_a_follower_loads_a_snapshot_that_replaces_deleted_metadata_records(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock, knew_something: bool
) -> None:
    controller.store.create_topic("early")
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    if knew_something:
        async with following(broker, link):
            pass
    controller.store.delete_topic("early")
    for number in range(50):
        controller.store.create_topic(f"t{number}", partitions=2)
    controller.store.log.write_snapshot(controller.store.state.records())
    controller.store.create_topic("after")
    async with following(broker, link):
        assert_same(broker, controller)
    assert "early" not in broker.store.topics
    deleted = [change.is_recorded for change in broker.changes if isinstance(change, TopicDeleted)]
    assert deleted == ([False] if knew_something else []), "a snapshot deletes no data"
    broker.close()
    assert_same(Node(tmp_path / "broker", BROKER), controller)


async def test_a_large_snapshot_comes_in_pieces(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gregor.broker.peers.metadata_follower.MAX_BYTES", 100)
    for number in range(20):
        controller.store.create_topic(f"t{number}")
    controller.store.log.write_snapshot(controller.store.state.records())
    broker, link = Node(tmp_path / "broker", BROKER), Link(controller)
    async with following(broker, link):
        assert_same(broker, controller)


async def test_a_follower_bounds_its_metadata_log_with_snapshots(
    tmp_path: Path, controller: Node, autojump_clock: trio.testing.MockClock
) -> None:
    settings = {**BROKER, "metadata.log.max.record.bytes.between.snapshots": "3000"}
    broker, link = Node(tmp_path / "broker", settings), Link(controller)
    async with following(broker, link):
        for number in range(100):
            controller.store.create_topic(f"t{number}")
            controller.store.delete_topic(f"t{number}")
        await caught_up(broker, link)
    assert broker.store.log.start_offset > 0
    broker.close()
    assert_same(Node(tmp_path / "broker", settings), controller)


async def test_the_controller_of_another_cluster_is_not_followed(tmp_path: Path, controller: Node) -> None:
    stranger, link = Node(tmp_path / "broker", BROKER, "another-cluster"), Link(controller)
    with pytest.RaisesGroup(BrokerError) as told:
        async with following(stranger, link):
            pass
    (error,) = told.value.exceptions
    assert "another-cluster" in str(error)
    assert "the-cluster" in str(error)


def test_a_controller_serves_only_flushed_metadata_records(tmp_path: Path) -> None:
    """A follower's copy need not be on disk: the follower reads lost records again."""
    controller = Node(tmp_path / "1", CONTROLLER)
    log = controller.logs.get(CLUSTER_METADATA, 0)
    assert log is not None
    assert log.recovery_point == log.log_end_offset > 0
    controller.store.allocate_producer_ids(1000)
    assert log.recovery_point == log.log_end_offset
    controller.close()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_controller_that_has_lost_metadata_records_does_not_start(
    tmp_path: Path, controller: Node, is_gone: bool
) -> None:
    controller.close()
    folder = tmp_path / "controller" / f"{CLUSTER_METADATA}-0"
    shutil.copytree(folder, tmp_path / "older")
    controller = Node(tmp_path / "controller", CONTROLLER)
    controller.store.create_topic("later")
    controller.close()
    shutil.rmtree(folder)
    if not is_gone:
        shutil.copytree(tmp_path / "older", folder)
    config = BrokerConfig(CONTROLLER)
    for _ in range(3):
        logs = LogManager([str(tmp_path / "controller")], LogConfig(), ManualClock(1000), node_id=1)
        logs.open_all()
        with pytest.raises(BrokerError) as refused:
            MetadataStore(config, ManualClock(1000)).open(logs)
        assert "gregor metadata recover" in str(refused.value)
        logs.close()
