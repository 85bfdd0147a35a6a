"""The largest batch that each topic accepts, as far as refusals have shown it.

KIP-126 splits a refused batch in two, and again until the parts fit: a producer that keeps no knowledge of the limit
sends most bytes several times, again for each batch. Here the first refusal of a topic makes its limit known.
"""

from __future__ import annotations

from collections.abc import Callable


class _Limit:
    """The knowledge about one topic; sizes are bytes of a batch on the wire."""

    __slots__ = ("accepted", "asked_at_size", "expires_at", "refused", "told")

    def __init__(self, refused: int) -> None:
        self.refused = refused
        """The smallest size that was refused."""
        self.accepted = 0
        """The largest size that was accepted since the first refusal."""
        self.told: int | None = None
        """The limit by the topic's configuration."""
        self.asked_at_size: int | None = None
        """`refused` when the configuration was last requested."""
        self.expires_at = 0.0


class SizeLimits:
    """The size limits of the topics that have refused a batch as too large.

    A limit comes from the topic's configuration, or is inferred from refusals and acceptances if a broker does not
    tell the configuration. Knowledge is dropped `max_age` seconds after the last refusal, and when a larger batch is
    accepted, as the configuration may have changed.
    """

    def __init__(self, max_age: float, clock: Callable[[], float]) -> None:
        self._max_age = max_age
        self._clock = clock
        self._limits: dict[str, _Limit] = {}
        self.are_known = False
        """Whether any topic has refused a batch as too large since the start."""

    def refused(self, topic: str, size_bytes: int) -> None:
        """Note that a batch of this size was too large."""
        limit = self._current(topic)
        if limit is None:
            limit = self._limits[topic] = _Limit(size_bytes)
            self.are_known = True
        limit.refused = min(limit.refused, size_bytes)
        if limit.accepted >= size_bytes:
            limit.accepted = 0
        limit.expires_at = self._clock() + self._max_age

    def accepted(self, topic: str, size_bytes: int) -> None:
        """Note that a batch of this size was accepted."""
        limit = self._limits.get(topic)
        if limit is None:
            return
        if size_bytes >= limit.refused:
            del self._limits[topic]
        else:
            limit.accepted = max(limit.accepted, size_bytes)

    def should_ask(self, topic: str) -> bool:
        """Return whether to request the topic's configuration: not yet requested, or a smaller batch than it allows
        was refused since.
        """
        limit = self._current(topic)
        if limit is None:
            return False
        return limit.asked_at_size is None or (
            limit.told is not None and limit.refused <= limit.told and limit.refused < limit.asked_at_size
        )

    def told(self, topic: str, limit_bytes: int | None) -> None:
        """Note the limit by the topic's configuration, None if brokers do not tell the configuration."""
        limit = self._current(topic)
        if limit is not None:
            limit.told = limit_bytes
            limit.asked_at_size = limit.refused

    def forget(self, topic: str) -> None:
        """Drop all knowledge of a topic."""
        self._limits.pop(topic, None)

    def is_too_large(self, topic: str, size_bytes: int) -> bool:
        """Return whether a batch of this size would be refused."""
        limit = self._current(topic)
        if limit is None:
            return False
        return size_bytes >= limit.refused or (limit.told is not None and size_bytes > limit.told)

    def configured(self, topic: str) -> int | None:
        """Return the limit by the topic's configuration in bytes; None if unknown, or if refusals contradict it."""
        limit = self._current(topic)
        return None if limit is None or limit.told is None or limit.told >= limit.refused else limit.told

    def part_limit(self, topic: str, size_bytes: int) -> int:
        """Return the size in bytes up to which the parts of a refused batch of `size_bytes` may be filled.

        Without a configured limit the parts are half as large as the smallest refused batch, or as large as the
        largest accepted one: so each refusal halves the sizes in question.
        """
        configured = self.configured(topic)
        if configured is not None:
            return configured
        limit = self._current(topic)
        smallest, largest = (size_bytes, 0) if limit is None else (limit.refused, limit.accepted)
        return max(smallest // 2, largest, 1)

    def _current(self, topic: str) -> _Limit | None:
        limit = self._limits.get(topic)
        if limit is not None and self._clock() >= limit.expires_at:
            del self._limits[topic]
            return None
        return limit
