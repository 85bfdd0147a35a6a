"""Fault rules: the requests or disk operations that a rule matches, its occasions, and its effect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

from ...protocol.apis import AnyApiKey
from ...protocol.errors import ErrorCode

SPARED_CLIENT_ID = "gregor-faults"
"""The client id of `gregor faults`, whose requests no rule matches, so that rules can always be removed."""


class Action(Enum):
    """An effect of a rule; each rule has one."""

    DELAY = "delay"
    ERROR = "error"
    DISCONNECT = "disconnect"
    STALL = "stall"
    TRUNCATE = "truncate"


class Moment(Enum):
    """A moment of a request's fault: before the broker handles it, or when only the answer is left to send."""

    REQUEST = "request"
    ANSWER = "answer"


class DiskOperation(Enum):
    """A disk operation that a rule matches."""

    APPEND = "append"
    """Operations that take space: writes, new files, files that grow."""
    FSYNC = "fsync"
    READ = "read"
    """Reads into the broker, not those of sendfile(2), which the kernel performs alone."""


@dataclass(frozen=True, slots=True)
class Occasions:
    """A set of conditions that select among matching requests; all conditions must hold."""

    every: int = 1
    """Every n-th match."""
    probability: float = 1.0
    seed: int = 0
    """The seed of the random choices, which depend only on it and the rule's name."""
    first: int | None = None
    """Largest number of times that the rule has an effect."""
    from_ms: float = 0.0
    """Time in ms after which the rule has an effect, since the rule was set or its period started."""
    until_ms: float | None = None
    """Time in ms until which the rule has an effect, since the same start."""
    period_ms: float | None = None
    """Start again after this time."""


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A rule for one fault. An empty collection matches everything: no ``topics`` means any request.

    ``topics``, ``clients`` and ``listeners`` may contain ``*`` for any text. A rule with ``disk`` applies to files,
    other rules apply to requests.
    """

    action: Action
    moment: Moment = Moment.REQUEST
    delay_ms: tuple[float, float] = (0.0, 0.0)
    """Least and most milliseconds; the delay is random between them."""
    error: ErrorCode = ErrorCode.NONE
    errno: int = 0
    kept_bytes: int = 0
    """The bytes sent of a truncated answer, without its length prefix."""
    apis: frozenset[AnyApiKey] = frozenset()
    topics: tuple[str, ...] = ()
    partitions: frozenset[int] = frozenset()
    clients: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    brokers: frozenset[int] = frozenset()
    """Node ids of the brokers whose requests match."""
    isolated: frozenset[int] = frozenset()
    """Node ids of isolated brokers: requests between them and all other brokers match, in both directions."""
    disk: DiskOperation | None = None
    directories: tuple[str, ...] = ()
    """Log directories."""
    occasions: Occasions = Occasions()

    @property
    def names_places(self) -> bool:
        """Whether the rule applies to some topics or partitions rather than to whole requests."""
        return bool(self.topics or self.partitions)

    def is_between(self, here: int, peer: int | None) -> bool:
        """Return whether `isolated` matches requests of broker ``peer`` to broker ``here``."""
        return not self.isolated or (peer is not None and (here in self.isolated) != (peer in self.isolated))

    def concerns_place(self, topic: str, partition: int | None) -> bool:
        """Return whether the rule matches a request for a partition, or for all partitions of a topic (None)."""
        return (not self.topics or fits(self.topics, topic)) and (
            not self.partitions or partition is None or partition in self.partitions
        )

    def strikes_place(self, topic: str | None, partition: int | None) -> bool:
        """Return whether the rule matches a request's entry for a partition, or for a topic as a whole (None)."""
        if self.partitions and partition not in self.partitions:
            return False
        return not self.topics or (topic is not None and fits(self.topics, topic))


def fits(patterns: tuple[str, ...], text: str) -> bool:
    """Return whether one of the patterns, in which ``*`` stands for any text, matches the text."""
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
