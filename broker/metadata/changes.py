"""The changes that the metadata store sends to subscribers: each change once, after it is durable and applied."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ...protocol.messages.cluster_metadata_records import AccessControlEntryRecord
from .state import TopicState


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A change that adds the partitions from ``first`` on to a topic; ``first`` is 0 for a new topic."""

    topic: TopicState
    first: int


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """A change of leader, leader epoch, in-sync set or replicas of partitions; `topic` has the new values."""

    topic: TopicState
    indexes: tuple[int, ...]
    is_recorded: bool = True
    """Whether a record is the cause; else the difference comes from a snapshot, and no log is deleted for it."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """A change of the registered brokers, their addresses or their fencing."""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A deletion of a topic; ``topic`` is its last state."""

    topic: TopicState
    is_recorded: bool = True
    """Whether a record is the cause; else a snapshot lacks the topic, and its logs are kept."""


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """A change of a topic's own configuration."""

    topic: TopicState


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """A change of this broker's dynamic configuration, which `BrokerConfig` already has."""


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """A change of client quotas."""


@dataclass(frozen=True, slots=True)
class ClientMetricsChanged:
    """A change of the subscriptions to clients' metrics (KIP-714)."""


@dataclass(frozen=True, slots=True)
class AclsChanged:
    """A change of the access control lists: the records that came into force and those that are in force no more."""

    added: tuple[AccessControlEntryRecord, ...]
    removed: tuple[AccessControlEntryRecord, ...]


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """A change of finalized feature levels."""


MetadataChange: TypeAlias = (
    PartitionsAdded
    | PartitionsChanged
    | BrokersChanged
    | TopicDeleted
    | TopicConfigChanged
    | BrokerConfigChanged
    | QuotasChanged
    | ClientMetricsChanged
    | AclsChanged
    | FeaturesChanged
)
Subscriber: TypeAlias = Callable[[MetadataChange], None]
