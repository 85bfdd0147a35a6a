"""The present topics as groups of the consumer protocol use them: by name, by id, and by pattern."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol
from uuid import UUID

import trio

from ...metadata.state import TopicState
from .topic_patterns import CompiledPattern, PatternError, compiled, matching_names

logger = logging.getLogger(__name__)

REMEMBERED_PATTERNS = 1000
REMEMBERED_NAMES = 1_000_000
"""Matches of all remembered patterns together."""
IN_LOOP_S = 0.002
"""Time in seconds that names are matched in the event loop's thread before a worker thread continues."""
IN_THREAD_S = 0.02
"""Time in seconds that one pattern is matched in a worker thread before the next pattern gets a turn."""
MOST_NAMES_A_TURN = 10_000


class TopicSource(Protocol):
    """A source of the present topics (`MetadataStore`)."""

    @property
    def topics(self) -> Mapping[str, TopicState]:
        """The topics by name."""

    def topic_by_id(self, topic_id: UUID) -> TopicState | None:
        """Return a topic by its id, None if there is none."""

    @property
    def end_offset(self) -> int:
        """A number that grows with every change."""


class _PatternMatches:
    """A set of the names that match one pattern, with the names that were not matched yet."""

    def __init__(self, pattern: str, names: Collection[str]) -> None:
        self.matching: frozenset[str] = frozenset()
        self.unseen = list(names)
        self.users = 0
        """Number of tasks that wait for `unseen` to become empty."""
        self.turn = trio.Lock()
        self._compiled: CompiledPattern | None = None
        try:
            self._compiled = compiled(pattern)
        except PatternError as error:
            logger.warning("a group's pattern %r matches no topic, as it cannot be compiled: %s", pattern[:100], error)

    def look_on(self, existing: Mapping[str, TopicState]) -> None:
        """Match names in this thread, for a short time."""
        if self.unseen and not self.turn.locked():
            self._take(self._match_some(IN_LOOP_S), existing)

    async def finish(self, existing: Mapping[str, TopicState], threads: trio.CapacityLimiter) -> None:
        """Match all names in worker threads, in turns that ``threads`` grants one after the other."""
        async with self.turn:
            while self.unseen:
                self._take(await trio.to_thread.run_sync(self._match_some, IN_THREAD_S, limiter=threads), existing)

    def follow(self, created: Collection[str], deleted: Collection[str]) -> None:
        """Queue new topics for matching, and remove deleted ones."""
        self.unseen += created
        if not self.matching.isdisjoint(deleted):
            self.matching = self.matching.difference(deleted)

    def _match_some(self, longest_s: float) -> tuple[int, list[str]]:
        names = self.unseen[:MOST_NAMES_A_TURN]
        return (len(names), []) if self._compiled is None else matching_names(self._compiled, names, longest_s)

    def _take(self, outcome: tuple[int, list[str]], existing: Mapping[str, TopicState]) -> None:
        count, found = outcome
        del self.unseen[:count]
        # A topic may have been deleted while its name was being matched.
        present = [name for name in found if name in existing]
        if present:
            self.matching = self.matching.union(present)


class CurrentTopics:
    """A source of topics that updates the matches of patterns as topics are created and deleted.

    Matching is linear in the names, but a name may take a pattern milliseconds (`RE2` without a DFA), and there may be
    100,000 names: `match` does it in worker threads, so that the event loop serves other requests meanwhile.
    """

    def __init__(self, source: TopicSource) -> None:
        self._source = source
        self._matches: dict[str, _PatternMatches] = {}
        """Matches by pattern, the most recently used pattern at the end."""
        self._names: set[str] = set()
        self._seen_at = -1
        self._threads = trio.CapacityLimiter(1)

    @property
    def by_name(self) -> Mapping[str, TopicState]:
        """All topics by name, not to be changed."""
        return self._source.topics

    def by_id(self, topic_id: UUID) -> TopicState | None:
        """Return a topic by its id, None if there is none."""
        return self._source.topic_by_id(topic_id)

    async def match(self, patterns: Collection[str]) -> None:
        """Match all existing topics against patterns, as far as they are not matched yet.

        As long as the caller's task does not wait after this call, `matching` returns the names of each pattern. A
        pattern that cannot be compiled (of a later Kafka, in the log) matches nothing.
        """
        held: list[_PatternMatches] = []
        try:
            for pattern in patterns:
                matches = self._matches_of(pattern)
                matches.users += 1
                held.append(matches)
            while (behind := self._behind(held)) is not None:
                await behind.finish(self.by_name, self._threads)
        finally:
            for matches in held:
                matches.users -= 1
            self._forget_oldest()

    def matching(self, pattern: str) -> frozenset[str] | None:
        """Return the names of the matching topics, internal ones as well, as in Kafka 4.

        None if names are not matched yet and matching them would block the event loop.
        """
        is_new = pattern not in self._matches
        matches = self._matches_of(pattern)
        matches.look_on(self.by_name)
        if is_new:
            self._forget_oldest()
        return None if matches.unseen else matches.matching

    def _behind(self, held: Collection[_PatternMatches]) -> _PatternMatches | None:
        self._follow_source()
        for matches in held:
            matches.look_on(self.by_name)
            if matches.unseen:
                return matches
        return None

    def _matches_of(self, pattern: str) -> _PatternMatches:
        self._follow_source()
        matches = self._matches.pop(pattern, None) or _PatternMatches(pattern, self._names)
        self._matches[pattern] = matches
        return matches

    def _follow_source(self) -> None:
        if self._seen_at == self._source.end_offset:
            return
        self._seen_at = self._source.end_offset
        existing = self.by_name.keys()
        created, deleted = existing - self._names, self._names - existing
        if created or deleted:
            self._names = set(existing)
            for matches in self._matches.values():
                matches.follow(created, deleted)

    def _forget_oldest(self) -> None:
        excess = len(self._matches) - REMEMBERED_PATTERNS
        names = sum(len(matches.matching) for matches in self._matches.values()) - REMEMBERED_NAMES
        if excess <= 0 and names <= 0:
            return
        for pattern, matches in list(self._matches.items()):
            if excess <= 0 and names <= 0:
                return
            if not matches.users:
                del self._matches[pattern]
                excess -= 1
                names -= len(matches.matching)
