"""The nodes in which Kafka 0.8 and 0.9 brokers registered themselves, their topics and partitions.

The nodes are computed from the cluster's metadata; what has changed is written to the tree, so that watches fire.
Paths and JSON are those of Kafka 0.9 (`kafka.utils.ZkUtils`), which 0.8 clients read too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from .kafka_cluster import BrokerAddress, ClientAddress, KafkaCluster, PartitionView, TopicView
from .paths import child_of
from .tree import DataTree, Origin

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
CLUSTER_ID = "/cluster/id"
CONSUMERS = "/consumers"
DELETE_TOPICS = "/admin/delete_topics"
TOPIC_CONFIGS = "/config/topics"
FOLDERS = (
    BROKER_IDS,
    BROKER_TOPICS,
    "/brokers/seqid",
    "/config/changes",
    "/config/clients",
    TOPIC_CONFIGS,
    DELETE_TOPICS,
    CONSUMERS,
    "/isr_change_notification",
    "/zookeeper/quota",
)
EPOCH_OF_CONTROLLER = 1
"""The epoch in `/controller_epoch`: no client of ZooKeeper is ever fenced by it."""


class BrokerNodes:
    """A view of the cluster's metadata as nodes, brought up to date by `refresh`."""

    def __init__(self, tree: DataTree, cluster: KafkaCluster, started_ms: int) -> None:
        """Make the nodes; `started_ms` is the time at which the brokers' nodes say that they were made."""
        self._tree = tree
        self._cluster = cluster
        self._started = str(started_ms)
        self._shown: dict[str, TopicView] = {}
        self._is_stale = True
        for folder in FOLDERS:
            tree.put(folder, None, Origin.METADATA)
        cluster.subscribe(self._changed)
        self.refresh()

    def _changed(self) -> None:
        self._is_stale = True

    def refresh(self) -> None:
        """Show the present metadata in the tree, in one transaction, if it has changed."""
        if not self._is_stale:
            return
        self._is_stale = False
        with self._tree.transaction():
            self._show_brokers()
            self._show_topics()

    def data_for(self, path: str, client: ClientAddress) -> bytes | None:
        """Return the data of a broker's node with the address for this client; None for any other node."""
        folder, _, name = path.rpartition("/")
        if folder != BROKER_IDS or not name.isascii() or not name.isdecimal():
            return None
        address = self._cluster.brokers(client).get(int(name))
        return None if address is None else self._broker(address)

    def _show_brokers(self) -> None:
        tree, cluster = self._tree, self._cluster
        tree.put(CLUSTER_ID, to_json({"version": "1", "id": cluster.cluster_id}), Origin.METADATA)
        tree.put(CONTROLLER_EPOCH, str(EPOCH_OF_CONTROLLER).encode(), Origin.METADATA)
        controller = {"version": 1, "brokerid": cluster.controller_id, "timestamp": self._started}
        if cluster.controller_id >= 0:
            tree.put(CONTROLLER, to_json(controller), Origin.METADATA)
        else:
            tree.delete_below(CONTROLLER)
        brokers = cluster.brokers(None)
        for name in sorted(tree.get(BROKER_IDS).children - {str(node_id) for node_id in brokers}):
            tree.delete_below(child_of(BROKER_IDS, name))
        for node_id, address in brokers.items():
            tree.put(child_of(BROKER_IDS, str(node_id)), self._broker(address), Origin.METADATA)

    def _broker(self, address: BrokerAddress) -> bytes:
        host = f"[{address.host}]" if ":" in address.host else address.host
        return to_json(
            {
                "jmx_port": -1,
                "timestamp": self._started,
                "endpoints": [f"PLAINTEXT://{host}:{address.port}"],
                "host": address.host,
                "version": 2,
                "port": address.port,
            }
        )

    def _show_topics(self) -> None:
        topics = self._cluster.topics()
        for name in sorted(self._shown.keys() - topics.keys()):
            del self._shown[name]
            self._tree.delete_below(child_of(BROKER_TOPICS, name))
            self._tree.delete_below(child_of(TOPIC_CONFIGS, name))
        for name, topic in topics.items():
            shown = self._shown.get(name)
            if shown is topic:
                continue
            if shown != topic:
                self._show_topic(name, topic, shown)
            self._shown[name] = topic

    def _show_topic(self, name: str, topic: TopicView, shown: TopicView | None) -> None:
        path = child_of(BROKER_TOPICS, name)
        known = shown.partitions if shown else ()
        if len(topic.partitions) < len(known):
            # Deleted and created again since.
            self._tree.delete_below(path)
            known = ()
        self._tree.put(path, assignment([partition.replicas for partition in topic.partitions]), Origin.METADATA)
        for index, partition in enumerate(topic.partitions):
            if index >= len(known) or known[index] != partition:
                self._tree.put(f"{path}/partitions/{index}/state", _state(partition), Origin.METADATA)
        self._tree.put(child_of(TOPIC_CONFIGS, name), topic_config(dict(topic.configs)), Origin.METADATA)


def to_json(value: Mapping[str, object]) -> bytes:
    """Return JSON without blanks, as Kafka writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def assignment(replicas: Sequence[Sequence[int]]) -> bytes:
    """Return the data of a topic's node: the broker ids of each partition's replicas."""
    return to_json({"version": 1, "partitions": {str(index): list(ids) for index, ids in enumerate(replicas)}})


def topic_config(configs: Mapping[str, str]) -> bytes:
    """Return the data of the node with a topic's configuration."""
    return to_json({"version": 1, "config": configs})


def _state(partition: PartitionView) -> bytes:
    return to_json(
        {
            "controller_epoch": EPOCH_OF_CONTROLLER,
            "leader": partition.leader,
            "version": 1,
            "leader_epoch": partition.leader_epoch,
            "isr": list(partition.isr),
        }
    )
