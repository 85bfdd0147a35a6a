"""The nodes of committed offsets, `/consumers/GROUP/offsets/TOPIC/PARTITION`, which Kafka's groups hold.

The tree has a copy of these nodes. Before a request concerns one of them, `refresh` fetches the offsets from Kafka; a
write is committed in Kafka first. So a consumer that keeps its offsets in ZooKeeper goes on where a member of the group
stopped, and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from .broker_nodes import CONSUMERS
from .kafka_cluster import ClientAddress, KafkaCluster, TopicPartition
from .keeper_errors import KeeperCode, KeeperError
from .paths import check_path, child_of, names_in, parent_of
from .tree import DataTree, Origin

OFFSETS = "offsets"
MAX_OFFSET = (1 << 63) - 1
MOST_DIGITS = 19
MAX_PARTITION = (1 << 31) - 1


class OffsetsPlace(NamedTuple):
    """A place at or above offset nodes: all groups, one group, or one topic or partition of a group."""

    group: str | None = None
    topic: str | None = None
    partition: int | None = None

    @property
    def leaf(self) -> TopicPartition | None:
        """The partition, if the place is a node with an offset."""
        if self.topic is None or self.partition is None:
            return None
        return TopicPartition(self.topic, self.partition)


def offsets_place(path: str) -> OffsetsPlace | None:
    """Return the place of a path among the nodes of offsets; None for all other paths."""
    match names_in(path):
        case ("consumers",):
            return OffsetsPlace()
        case ("consumers", group) | ("consumers", group, "offsets"):
            return OffsetsPlace(group)
        case ("consumers", group, "offsets", topic):
            return OffsetsPlace(group, topic)
        case ("consumers", group, "offsets", topic, partition):
            number = _number(partition, MAX_PARTITION)
            return None if number is None or str(number) != partition else OffsetsPlace(group, topic, number)
    return None


def parse_offset(data: bytes | None) -> int:
    """Return the offset in a node's data. Raises KeeperError BADARGUMENTS: only offsets can be kept in Kafka."""
    offset = _number((data or b"").decode("latin-1").strip(), MAX_OFFSET)
    if offset is None:
        raise KeeperError(KeeperCode.BADARGUMENTS, "the data of an offset's node is not an offset")
    return offset


def _number(text: str, most: int) -> int | None:
    if not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS or int(text) > most:
        return None
    return int(text)


class ConsumerOffsets:
    """A view of the groups' committed offsets as nodes. Methods raise BrokerError where Kafka refuses."""

    def __init__(self, tree: DataTree, cluster: KafkaCluster) -> None:
        self._tree = tree
        self._cluster = cluster

    async def refresh(self, place: OffsetsPlace, client: ClientAddress) -> None:
        """Show the present offsets at or below a place; at the top, the groups only."""
        if place.group is None:
            self._show_groups(set(await self._cluster.list_groups(client)))
            return
        leaf = place.leaf
        wanted = None if leaf is None else [leaf]
        offsets = await self._cluster.fetch_offsets(client, place.group, wanted)
        with self._tree.transaction():
            if leaf is None:
                self._show_group(place.group, offsets)
            elif leaf in offsets:
                self._put(place.group, leaf, offsets[leaf])
            else:
                self._remove(_leaf_path(place.group, leaf))

    async def commit(self, place: OffsetsPlace, data: bytes | None, client: ClientAddress) -> None:
        """Commit the offset in a node's new data. Raises KeeperError BADARGUMENTS."""
        offset, leaf = parse_offset(data), place.leaf
        assert place.group is not None
        assert leaf is not None
        await self._cluster.commit_offset(client, place.group, leaf, offset)

    async def forget(self, place: OffsetsPlace, client: ClientAddress) -> None:
        """Delete the committed offset of a node."""
        leaf = place.leaf
        assert place.group is not None
        assert leaf is not None
        await self._cluster.delete_offset(client, place.group, leaf)

    def _show_groups(self, groups: set[str]) -> None:
        with self._tree.transaction():
            for name in sorted(self._tree.get(CONSUMERS).children - groups):
                self._prune(child_of(CONSUMERS, name))
            for name in sorted(groups):
                path = child_of(CONSUMERS, name)
                if self._tree.find(path) is None and _is_name(name):
                    self._tree.put(path, None, Origin.OFFSETS)

    def _show_group(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        folder = f"{CONSUMERS}/{group}/{OFFSETS}"
        for path in self._leaves(folder):
            place = offsets_place(path)
            if place is not None and place.leaf not in offsets:
                self._remove(path)
        for leaf, offset in offsets.items():
            self._put(group, leaf, offset)

    def _leaves(self, folder: str) -> list[str]:
        known = self._tree.find(folder)
        topics = [child_of(folder, name) for name in sorted(known.children)] if known else []
        return [child_of(topic, name) for topic in topics for name in sorted(self._tree.get(topic).children)]

    def _put(self, group: str, leaf: TopicPartition, offset: int) -> None:
        self._tree.put(_leaf_path(group, leaf), str(offset).encode(), Origin.OFFSETS)

    def _remove(self, path: str) -> None:
        """Delete the node of an offset that Kafka no longer has, and the nodes that led only to it."""
        if self._tree.find(path) is not None:
            self._tree.delete_below(path)
            self._prune(parent_of(path))

    def _prune(self, path: str) -> None:
        while path != CONSUMERS:
            node = self._tree.find(path)
            if node is None or node.origin is not Origin.OFFSETS or node.children:
                return
            self._tree.delete(path)
            path = parent_of(path)


def _leaf_path(group: str, leaf: TopicPartition) -> str:
    return f"{CONSUMERS}/{group}/{OFFSETS}/{leaf.topic}/{leaf.partition}"


def _is_name(group: str) -> bool:
    """Return whether a group can have a node: ids with a slash, for example, have none."""
    try:
        check_path(child_of(CONSUMERS, group))
    except KeeperError:
        return False
    return "/" not in group
