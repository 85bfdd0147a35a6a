"""Small requests to brokers of a `ClusterOfProcesses`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.cluster_of_processes import ClusterOfProcesses, until


def create(
    cluster: ClusterOfProcesses,
    through: int,
    name: str,
    *,
    partitions: int = 3,
    replicas: int = 1,
    on: Sequence[int] = (),
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic through one broker, and wait until all know it; with ``on``, one partition on these brokers."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
    if on:
        placed = CreatableReplicaAssignment(partition_index=0, broker_ids=list(on))
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[placed])
    topic.configs = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
    with cluster.wire(through) as wire:
        answer = wire.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    assert [result.error_code for result in answer.topics] == [0], answer
    for node_id, broker in cluster.brokers.items():
        if broker.process.poll() is None:
            until(lambda node_id=node_id: cluster.metadata(node_id, name).topics[0].error_code == 0)  # type: ignore[misc]


def produce(cluster: ClusterOfProcesses, node_id: int, topic: str, partition: int, value: bytes) -> int:
    """Ask one broker to append one record with acks=all; the error code."""
    batch = v2.build_batch([Record(0, 1_700_000_000_000, None, value)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]))
    return int(answer.responses[0].partition_responses[0].error_code)


def fetched(cluster: ClusterOfProcesses, node_id: int, topic: str, partition: int) -> tuple[int, bytes]:
    """Return the error code and bytes of a fetch from the beginning."""
    wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=partition, partition_max_bytes=100_000)])
    with cluster.wire(node_id) as wire:
        answer = wire.ask(ApiKey.FETCH, 12, FetchRequest(max_wait_ms=0, topics=[wanted]))
    found = answer.responses[0].partitions[0]
    return found.error_code, bytes(found.records or b"")
