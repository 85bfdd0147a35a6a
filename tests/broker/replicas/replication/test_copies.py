"""Followers among three processes: in the end each has an exact copy of its leader's log."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.command_line.dump_side_files import TagsBeside
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.record import Record
from tests.broker.controller.cluster_calls import create, produce
from tests.cluster_of_processes import CONTROLLER, ClusterOfProcesses, running_cluster, until
from tests.wire import produce_once_there_is_a_leader

pytestmark = pytest.mark.slow

SETTINGS = (
    "broker.session.timeout.ms=4000",
    "broker.heartbeat.interval.ms=200",
    "auto.leader.rebalance.enable=false",
    "log.segment.bytes=2000",
)
NODES = (1, 2, 3)
EARLIEST = -2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterOfProcesses]:
    with running_cluster(tmp_path_factory.mktemp("copies"), 3, *SETTINGS) as running:
        yield running


def home(cluster: ClusterOfProcesses, node_id: int, topic: str) -> Path:
    return cluster.brokers[node_id].directory / "logs" / f"{topic}-0"


def contents(cluster: ClusterOfProcesses, node_id: int, topic: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(home(cluster, node_id, topic).glob("*.log")))


def leader_of(cluster: ClusterOfProcesses, topic: str, *, other_than: int = -1) -> int:
    """Return the leader of partition 0, as soon as it is another broker."""

    def found() -> int:
        leaders = {cluster.leaders(node_id, topic)[0] for node_id in NODES if is_running(cluster, node_id)}
        return leaders.pop() if len(leaders) == 1 and leaders.isdisjoint({-1, other_than}) else 0

    return until(found)


def is_running(cluster: ClusterOfProcesses, node_id: int) -> bool:
    return cluster.brokers[node_id].process.poll() is None


def write(cluster: ClusterOfProcesses, topic: str, count: int, *, prefix: bytes = b"v") -> None:
    for number in range(count):
        value = b"%s-%d-" % (prefix, number) + b"x" * 300
        until(lambda value=value: produce(cluster, leader_of(cluster, topic), topic, 0, value) == 0)  # type: ignore[misc]


def wait_until_all_are_in_sync(cluster: ClusterOfProcesses, topic: str) -> None:
    until(lambda: sorted(cluster.metadata(CONTROLLER, topic).topics[0].partitions[0].isr_nodes) == [1, 2, 3])


def wait_for_equal_copies(cluster: ClusterOfProcesses, topic: str) -> bytes:
    """Return the bytes that all three replicas have in the end, all of them in sync."""

    def equal() -> bytes:
        in_sync = cluster.metadata(1, topic).topics[0].partitions[0].isr_nodes
        assert sorted(in_sync) == [1, 2, 3]
        first, *others = (contents(cluster, node_id, topic) for node_id in NODES)
        assert others == [first, first]
        return first

    return until(equal)


def log_start(cluster: ClusterOfProcesses, node_id: int, topic: str) -> int:
    """Return the log start offset of that broker's replica, leader or not."""
    wanted = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)])
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.LIST_OFFSETS, 5, ListOffsetsRequest(replica_id=-2, topics=[wanted]))
    found = answer.topics[0].partitions[0]
    assert found.error_code == ErrorCode.NONE
    return int(found.offset)


def delete_records(cluster: ClusterOfProcesses, topic: str, offset: int) -> int:
    """Delete the records below ``offset``; return the low watermark of all replicas."""
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=60_000)
    with cluster.wire(leader_of(cluster, topic)) as wire:
        answer = wire.ask(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return int(answer.low_watermark)


def lose_records_of_a_follower(cluster: ClusterOfProcesses, topic: str) -> None:
    """Kill one, and start it again without its copy."""
    follower = next(node_id for node_id in (2, 3) if node_id != leader_of(cluster, topic))
    cluster.brokers[follower].kill()
    shutil.rmtree(home(cluster, follower, topic))
    cluster.brokers[follower].start_again()


def test_a_follower_that_has_lost_its_records_gets_them_again(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "lost", partitions=1, replicas=3)
    write(cluster, "lost", 20)
    lose_records_of_a_follower(cluster, "lost")
    assert b"v-19-" in wait_for_equal_copies(cluster, "lost")
    receipts = [receipt_times(cluster, node_id, "lost") for node_id in NODES]
    assert receipts == [receipts[0]] * 3, "those of the first leader, long after it has received the records"
    assert len(receipts[0]) == 20


def receipt_times(cluster: ClusterOfProcesses, node_id: int, topic: str) -> dict[int, int | None]:
    """Return the receipt time of each batch of one copy, by its offset, from the index on disk."""
    found: dict[int, int | None] = {}
    for path in sorted(home(cluster, node_id, topic).glob("*.log")):
        with TagsBeside(path) as tags:
            found |= {
                batch.stored_offset: tags.tags_of(batch).timestamp_ms for batch in iter_batches(path.read_bytes())
            }
    return found


def test_delete_records_advances_the_log_start_of_all_replicas_even_after_a_restart(
    cluster: ClusterOfProcesses,
) -> None:
    create(cluster, 1, "short", partitions=1, replicas=3)
    write(cluster, "short", 20)
    wait_for_equal_copies(cluster, "short")
    assert delete_records(cluster, "short", 5) == 5
    assert [log_start(cluster, node_id, "short") for node_id in NODES] == [5, 5, 5]
    follower = next(node_id for node_id in (2, 3) if node_id != leader_of(cluster, "short"))
    cluster.brokers[follower].kill()
    leader_of(cluster, "short")
    until(lambda: follower not in cluster.metadata(1, "short").topics[0].partitions[0].isr_nodes)
    write(cluster, "short", 20, prefix=b"late")
    assert delete_records(cluster, "short", 31) == 31
    cluster.brokers[follower].start_again()
    until(lambda: log_start(cluster, follower, "short") == 31)
    until(lambda: follower in cluster.metadata(1, "short").topics[0].partitions[0].isr_nodes)
    newest = contents(cluster, follower, "short")
    assert b"late-19-" in newest
    assert b"late-2-" not in newest
    assert contents(cluster, leader_of(cluster, "short"), "short").endswith(newest)


def test_old_formats_keep_their_leader_epochs_over_changes_of_leader(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "old", partitions=1, replicas=3)
    for generation, build in enumerate((v0.build_message_set, v1.build_message_set, v0.build_message_set)):
        messages = build([Record(0, 1_700_000_000_000, b"k", b"generation %d" % generation)])
        data = TopicProduceData(name="old", partition_data=[PartitionProduceData(index=0, records=messages)])
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
        leader = leader_of(cluster, "old")
        with cluster.wire(leader) as wire:
            assert produce_once_there_is_a_leader(wire, request, 2) == ErrorCode.NONE
        wait_until_all_are_in_sync(cluster, "old")
        cluster.brokers[leader].kill()
        if leader == CONTROLLER:
            # No broker is elected before that broker is back.
            cluster.brokers[leader].start_again()
            leader_of(cluster, "old")
        else:
            leader_of(cluster, "old", other_than=leader)
            cluster.brokers[leader].start_again()
    lose_records_of_a_follower(cluster, "old")
    write(cluster, "old", 1)
    assert b"generation 2" in wait_for_equal_copies(cluster, "old")
    epochs = {(home(cluster, node_id, "old") / "leader-epoch-checkpoint").read_bytes() for node_id in NODES}
    assert len(epochs) == 1


def test_consumers_since_version_11_may_read_from_followers(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "near", partitions=1, replicas=3)
    write(cluster, "near", 1)
    wait_for_equal_copies(cluster, "near")
    follower = next(node_id for node_id in NODES if node_id != leader_of(cluster, "near"))
    wanted = FetchTopic(topic="near", partitions=[FetchPartition(partition=0, partition_max_bytes=100_000)])
    request = FetchRequest(max_wait_ms=0, topics=[wanted])
    with cluster.wire(follower) as wire:
        refused = wire.ask(ApiKey.FETCH, 10, request).responses[0].partitions[0]
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

        def has_records() -> bool:
            served = wire.ask(ApiKey.FETCH, 11, request).responses[0].partitions[0]
            assert served.error_code == ErrorCode.NONE
            return b"v-0-" in bytes(served.records or b"")

        until(has_records)


def test_not_leader_or_follower_names_the_current_leader(cluster: ClusterOfProcesses) -> None:
    create(cluster, 1, "hinted", partitions=1, replicas=1)
    leader = leader_of(cluster, "hinted")
    topic_id = cluster.metadata(1, "hinted").topics[0].topic_id
    batch = v2.build_batch([Record(0, 1_700_000_000_000, None, b"x")])
    data = TopicProduceData(name="hinted", partition_data=[PartitionProduceData(index=0, records=batch)])
    wanted = FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1_000)])
    with cluster.wire(next(node_id for node_id in NODES if node_id != leader)) as wire:
        produced = wire.ask(ApiKey.PRODUCE, 10, ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data]))
        fetched = wire.ask(ApiKey.FETCH, 16, FetchRequest(max_wait_ms=0, topics=[wanted]))
    for refused in (produced.responses[0].partition_responses[0], fetched.responses[0].partitions[0]):
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (leader, 0)
    for response in (produced, fetched):
        nodes = [(node.node_id, node.port) for node in response.node_endpoints]
        assert nodes == [(leader, cluster.brokers[leader].address[1])]
