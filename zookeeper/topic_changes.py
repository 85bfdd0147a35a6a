"""The writes with which Kafka's old tools change topics, made to Kafka instead.

`kafka.admin.AdminUtils` of 0.8 and 0.9 creates `/brokers/topics/TOPIC` with the assignment of replicas, and before that
`/config/topics/TOPIC`; it adds partitions by new data of the former, changes a configuration by new data of the latter,
and deletes a topic by a node in `/admin/delete_topics`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .broker_nodes import BROKER_TOPICS, DELETE_TOPICS, TOPIC_CONFIGS
from .kafka_cluster import ClientAddress, KafkaCluster
from .keeper_errors import KeeperCode, KeeperError
from .paths import child_of, name_of, parent_of
from .tree import DataTree, Origin

MOST_PARTITIONS = 100_000
"""Most partitions in the data of a topic's node, far above what any tool writes in a node of 1 MB."""


class TopicChanges:
    """A translator of writes to nodes of topics. Methods raise BrokerError where Kafka refuses."""

    def __init__(self, tree: DataTree, cluster: KafkaCluster) -> None:
        self._tree = tree
        self._cluster = cluster

    def is_creation(self, path: str) -> bool:
        """Return whether creating this node creates or deletes a topic."""
        return parent_of(path) in (BROKER_TOPICS, DELETE_TOPICS)

    def is_change(self, path: str) -> bool:
        """Return whether new data of this node changes a topic."""
        node = self._tree.find(path)
        is_of_topic = parent_of(path) in (BROKER_TOPICS, TOPIC_CONFIGS)
        return is_of_topic and node is not None and node.origin is Origin.METADATA

    async def create(self, path: str, data: bytes | None, client: ClientAddress) -> None:
        """Create or delete the topic of a new node. Raises KeeperError BADARGUMENTS."""
        topic = name_of(path)
        if parent_of(path) == DELETE_TOPICS:
            await self._cluster.delete_topic(client, topic)
            return
        early = self._tree.find(child_of(TOPIC_CONFIGS, topic))
        configs = {} if early is None else parse_configs(early.data)
        await self._cluster.create_topic(client, topic, parse_assignment(data), configs)

    async def change(self, path: str, data: bytes | None, client: ClientAddress) -> None:
        """Change the topic of a node that gets new data. Raises KeeperError BADARGUMENTS, UNIMPLEMENTED."""
        topic = name_of(path)
        if parent_of(path) == TOPIC_CONFIGS:
            configs = parse_configs(data)
            # `AdminUtils` writes the configuration that it has read whenever it adds partitions.
            if configs != parse_configs(self._tree.get(path).data):
                await self._cluster.set_configs(client, topic, configs)
            return
        replicas, known = parse_assignment(data), parse_assignment(self._tree.get(path).data)
        if replicas[: len(known)] != known:
            raise KeeperError(KeeperCode.UNIMPLEMENTED, "replicas are not moved through ZooKeeper's protocol")
        if len(replicas) > len(known):
            await self._cluster.add_partitions(client, topic, len(replicas), replicas[len(known) :])


def parse_assignment(data: bytes | None) -> list[Sequence[int]]:
    """Return the broker ids of each partition's replicas, from a topic's node. Raises KeeperError BADARGUMENTS."""
    partitions = _mapping_in(data, "partitions")
    if len(partitions) > MOST_PARTITIONS:
        raise KeeperError(KeeperCode.BADARGUMENTS, "too many partitions")
    replicas: list[Sequence[int]] = []
    for index in range(len(partitions)):
        ids = partitions.get(str(index))
        if not isinstance(ids, list) or not ids or not all(_is_broker_id(node_id) for node_id in ids):
            raise KeeperError(KeeperCode.BADARGUMENTS, f"partition {index} has no list of replicas")
        replicas.append(ids)
    if not replicas:
        raise KeeperError(KeeperCode.BADARGUMENTS, "a topic without partitions")
    return replicas


def parse_configs(data: bytes | None) -> dict[str, str]:
    """Return the configuration in a topic's configuration node. Raises KeeperError BADARGUMENTS."""
    configs = _mapping_in(data, "config")
    if not all(isinstance(value, str) for value in configs.values()):
        raise KeeperError(KeeperCode.BADARGUMENTS, "a configuration value is not a string")
    return {name: str(value) for name, value in configs.items()}


def _is_broker_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _mapping_in(data: bytes | None, field: str) -> Mapping[str, object]:
    try:
        value = json.loads(data or b"")
        # Escapes can stand for lone surrogates, which no Kafka request can carry.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        value = None
    found = value.get(field) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise KeeperError(KeeperCode.BADARGUMENTS, f"the data is not JSON with an object {field!r}")
    return found
