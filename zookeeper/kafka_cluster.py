"""The interface between ZooKeeper's nodes and Kafka, which the broker and the gateway implement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol


class ClientAddress(NamedTuple):
    """The two ends of a client's connection, as host and port."""

    peer: tuple[str, int]
    local: tuple[str, int]
    """The address that the client dialled."""


class BrokerAddress(NamedTuple):
    """The address at which a client without TLS reaches a broker."""

    host: str
    port: int


class PartitionView(NamedTuple):
    """A partition with the ids of its brokers; a leader of -1 if there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicView(NamedTuple):
    """A topic with its partitions in the order of their indexes, and its own configuration."""

    partitions: tuple[PartitionView, ...]
    configs: tuple[tuple[str, str], ...] = ()


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class KafkaCluster(Protocol):
    """A Kafka cluster: its metadata as far as it is known here, and requests on behalf of ZooKeeper's clients.

    Requests are made with the rights of the client at `ClientAddress.peer`. They raise BrokerError; each retries errors
    that pass by themselves, such as NOT_COORDINATOR, for a limited time.
    """

    @property
    def cluster_id(self) -> str:
        """The id of the cluster."""

    @property
    def controller_id(self) -> int:
        """The broker that clients take for the controller; -1 if unknown."""

    def brokers(self, client: ClientAddress | None) -> Mapping[int, BrokerAddress]:
        """Return the brokers by id, with addresses for this client; None stands for no client in particular."""

    def topics(self) -> Mapping[str, TopicView]:
        """Return the topics by name; a topic that has not changed is the same object as before."""

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each change of `brokers`, `topics` or `controller_id`."""

    async def list_groups(self, client: ClientAddress) -> Collection[str]:
        """Return the ids of all groups."""

    async def fetch_offsets(
        self, client: ClientAddress, group: str, partitions: Sequence[TopicPartition] | None
    ) -> Mapping[TopicPartition, int]:
        """Return a group's committed offsets of these partitions, or of all for None; without those not committed."""

    async def commit_offset(self, client: ClientAddress, group: str, partition: TopicPartition, offset: int) -> None:
        """Commit an offset for a group, as a consumer that is not a member."""

    async def delete_offset(self, client: ClientAddress, group: str, partition: TopicPartition) -> None:
        """Delete a committed offset of a group."""

    async def create_topic(
        self, client: ClientAddress, topic: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> None:
        """Create a topic, with the broker ids of each partition's replicas."""

    async def add_partitions(
        self, client: ClientAddress, topic: str, count: int, added: Sequence[Sequence[int]]
    ) -> None:
        """Increase a topic's partitions to `count`; `added` has the broker ids of each new partition's replicas."""

    async def set_configs(self, client: ClientAddress, topic: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's own configuration."""

    async def delete_topic(self, client: ClientAddress, topic: str) -> None:
        """Delete a topic."""
