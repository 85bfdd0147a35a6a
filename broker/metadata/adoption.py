"""Adoption of partition directories that the metadata does not contain, or assigns to missing brokers.

So a directory that was copied from a Kafka works at once. Only a lone broker adopts directories; in a cluster such
directories may be old copies of partitions that another broker leads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from uuid import uuid4

from ...protocol.internal_topics import CLUSTER_METADATA
from ...protocol.messages.cluster_metadata_records import PartitionChangeRecord
from ...protocol.schema import NO_UUID, Message
from ...storage.log_manager import LogManager
from .state import ClusterState, PartitionState, TopicState, partition_record, topic_records

logger = logging.getLogger(__name__)


def delete_removed(state: ClusterState, logs: LogManager) -> None:
    """Delete the logs of topics whose deletion was interrupted by a crash."""
    for log in logs.logs():
        if log.topic_id in state.removed_topic_ids:
            logger.info("deleting %s-%d, whose topic was deleted before", log.topic, log.partition)
            logs.delete(log.topic, log.partition)
    state.removed_topic_ids.clear()


def adoption_records(
    state: ClusterState, logs: LogManager, node_id: int, configs_by_internal_topic: Mapping[str, Mapping[str, str]]
) -> Iterator[list[Message]]:
    """Yield, by topic, records that create topics for unknown directories and assign partitions to ``node_id``.

    The caller must apply each list to the state before it requests the next one.
    """
    found: dict[str, set[int]] = {}
    for log in logs.logs():
        if log.topic != CLUSTER_METADATA:
            found.setdefault(log.topic, set()).add(log.partition)
    for name, indexes in sorted(found.items()):
        topic = state.topics.get(name)
        if topic is None:
            yield _new_topic(name, indexes, state, logs, node_id, configs_by_internal_topic.get(name, {}))
        elif records := list(_partitions(topic, indexes, logs, node_id)):
            yield records


def _new_topic(
    name: str, indexes: set[int], state: ClusterState, logs: LogManager, node_id: int, configs: Mapping[str, str]
) -> list[Message]:
    own_ids = [log.topic_id for index in sorted(indexes) if (log := logs.get(name, index)) is not None]
    topic_id = next((i for i in own_ids if i not in (None, NO_UUID) and i not in state.topics_by_id), None)
    topic = TopicState(name, topic_id or uuid4(), configs=dict(configs))
    # A gap in the numbers is a partition that was not copied: it is served empty rather than not at all.
    alone = [PartitionState(index, node_id, 0, [node_id], [node_id]) for index in range(max(indexes) + 1)]
    topic.partitions = [with_epoch_after(partition, topic, logs) for partition in alone]
    for index in sorted(indexes):
        logger.info("adopted %s-%d%s", name, index, _extent(logs, name, index))
    return list(topic_records(topic))


def _partitions(topic: TopicState, indexes: set[int], logs: LogManager, node_id: int) -> Iterator[Message]:
    for index in sorted(indexes):
        alone = [node_id]
        if index >= len(topic.partitions):
            yield partition_record(topic.topic_id, PartitionState(index, node_id, 0, alone, alone))
        elif topic.partitions[index].leader != node_id:
            yield PartitionChangeRecord(
                partition_id=index, topic_id=topic.topic_id, isr=alone, leader=node_id, replicas=alone
            )
        else:
            continue
        logger.info("adopted %s-%d%s", topic.name, index, _extent(logs, topic.name, index))


def with_epoch_after(partition: PartitionState, topic: TopicState, logs: LogManager) -> PartitionState:
    """Return the partition with a leader epoch above all epochs of the records in its log here."""
    log = logs.get(topic.name, partition.index)
    if log is None or log.topic_id not in (None, NO_UUID, topic.topic_id) or log.leader_epoch <= partition.leader_epoch:
        return partition
    logger.info("%s-%d has records of leader epoch %d: raised", topic.name, partition.index, log.leader_epoch)
    return replace(partition, leader_epoch=log.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)


def _extent(logs: LogManager, topic: str, index: int) -> str:
    log = logs.get(topic, index)
    return f", offsets {log.log_start_offset} to {log.log_end_offset}" if log else ""
