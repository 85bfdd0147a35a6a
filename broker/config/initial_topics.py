"""``gregor.create.topics``: topics that are created before the broker serves clients."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .keys import ConfigError

UNTOLD = -1
"""A number of partitions or replicas that is left to the broker's defaults."""
FORM = "NAME[:PARTITIONS[:REPLICATION]][:POLICY or :KEY=VALUE]..."
POLICIES = ("delete", "compact")


class InitialTopic(NamedTuple):
    """A topic to create at the start, with its own topic keys."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


def parse_initial_topics(pieces: Iterable[str]) -> list[InitialTopic]:
    """Return the topics that the pieces of ``gregor.create.topics`` name, each ``name:partitions:replication:policy``.

    The form is that of KAFKA_CREATE_TOPICS of the wurstmeister/kafka image; line ends separate topics as commas do, and
    a part with "=" is a topic key. Raises ConfigError for any other form.
    """
    texts = [text.strip() for piece in pieces for text in piece.splitlines()]
    topics = [_parsed(text) for text in texts if text]
    names = [topic.name for topic in topics]
    if len(set(names)) < len(names):
        raise ConfigError("gregor.create.topics names a topic twice: name each once")
    return topics


def _parsed(text: str) -> InitialTopic:
    name, *parts = (part.strip() for part in text.split(":"))
    counts = list(_leading_counts(parts))
    configs: dict[str, str] = {}
    for part in parts[len(counts) :]:
        key, equals, value = part.partition("=")
        if not equals and part in POLICIES:
            key, equals, value = "cleanup.policy", "=", part
        if not equals or not key:
            raise ConfigError(f"Invalid value {text} for configuration gregor.create.topics: write it as {FORM}")
        configs[key] = value
    if not name or 0 in counts:
        raise ConfigError(f"Invalid value {text} for configuration gregor.create.topics: write it as {FORM}")
    partitions, replication_factor = [*counts, UNTOLD, UNTOLD][:2]
    return InitialTopic(name, partitions, replication_factor, configs)


def _leading_counts(parts: list[str]) -> Iterator[int]:
    for part in parts[:2]:
        if not re.fullmatch("[0-9]{1,9}", part):
            return
        yield int(part)
