"""The topics that exist now, as groups of the consumer protocol see them: by name, by id, and by pattern."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from ....protocol.errors import BrokerError, ErrorCode
from ...metadata.state import TopicState
from .topic_pattern import PatternError, TopicPattern

logger = logging.getLogger(__name__)

REMEMBERED_PATTERNS = 1000


class TopicSource(Protocol):
    """Where topics are known (`MetadataStore`)."""

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """By name."""

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        """One of them by its id."""

    @property
    def end_offset(self) -> int:
        """A number that grows with every change."""


class CurrentTopics:
    """A source of topics, with the outcome of patterns remembered until topics change."""

    def __init__(self, source: TopicSource) -> None:
        self._source = source
        self._matching: dict[str, frozenset[str]] = {}
        self._matched_at = source.end_offset

    @property
    def by_name(self) -> Mapping[str, TopicState]:
        """All topics, not to be changed."""
        return self._source.topics

    def by_id(self, topic_id: UUID) -> TopicState | None:
        """A topic by its id, if there is one."""
        return self._source.topic_by_id(topic_id)

    def matching(self, pattern: str) -> frozenset[str]:
        """Names of the topics that match, internal ones as well, as in Kafka 4.

        None for a pattern that cannot be read (some later Kafka's, in the log).
        """
        if self._matched_at != self._source.end_offset or len(self._matching) > REMEMBERED_PATTERNS:
            self._matching.clear()
            self._matched_at = self._source.end_offset
        names = self._matching.get(pattern)
        if names is None:
            names = self._matching[pattern] = self._match(pattern)
        return names

    def _match(self, pattern: str) -> frozenset[str]:
        try:
            compiled = _compiled(pattern)
        except PatternError as error:
            logger.warning("a group's pattern %r cannot be read: %s", pattern, error)
            return frozenset()
        return frozenset(name for name in self.by_name if compiled.matches(name))


def check_pattern(pattern: str) -> None:
    """Whether a member may subscribe with this pattern. Raises BrokerError INVALID_REGULAR_EXPRESSION."""
    try:
        _compiled(pattern)
    except PatternError as error:
        raise BrokerError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.",
        ) from error


_compiled = lru_cache(maxsize=REMEMBERED_PATTERNS)(TopicPattern)
