"""What the metadata store tells those who act on it: each change once, after it is durable and visible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from .state import TopicState


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic has partitions from ``first`` on that it had not; ``first`` is 0 for a new topic."""

    topic: TopicState
    first: int


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Partitions of a topic have another leader, leader epoch, in-sync set or replicas now; `topic` has them."""

    topic: TopicState
    indexes: tuple[int, ...]
    is_recorded: bool = True
    """Whether a record says so; else a snapshot differs from what was known before, and nothing is deleted for that."""


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Brokers have come, gone, moved or been fenced."""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic is gone; ``topic`` is what it was."""

    topic: TopicState
    is_recorded: bool = True
    """Whether a record says so; else a snapshot lacks the topic, and its logs are kept."""


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """A topic's own configuration is another now."""

    topic: TopicState


@dataclass(frozen=True, slots=True)
class BrokerConfigChanged:
    """This broker's dynamic configuration is another now; `BrokerConfig` has it already."""


@dataclass(frozen=True, slots=True)
class QuotasChanged:
    """Client quotas are others now."""


@dataclass(frozen=True, slots=True)
class ClientMetricsChanged:
    """Subscriptions to clients' metrics (KIP-714) are others now."""


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """Features are finalized at other levels now."""


MetadataChange: TypeAlias = (
    PartitionsAdded
    | PartitionsChanged
    | BrokersChanged
    | TopicDeleted
    | TopicConfigChanged
    | BrokerConfigChanged
    | QuotasChanged
    | ClientMetricsChanged
    | FeaturesChanged
)
Subscriber: TypeAlias = Callable[[MetadataChange], None]
