"""What a fault rule is: which requests or disk operations it strikes, when, and what happens to them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

from ...protocol.apis import AnyApiKey
from ...protocol.errors import ErrorCode

SPARED_CLIENT_ID = "gregor-faults"
"""The client id of `gregor faults`: whatever the rules are, somebody must be able to take them back."""


class Action(Enum):
    """What happens; a rule has one of these."""

    DELAY = "delay"
    ERROR = "error"
    DISCONNECT = "disconnect"
    STALL = "stall"
    TRUNCATE = "truncate"


class Moment(Enum):
    """When it happens to a request: before the broker has done anything, or when all is done but for the answer."""

    REQUEST = "request"
    ANSWER = "answer"


class DiskOperation(Enum):
    """What a rule for disks strikes."""

    APPEND = "append"
    """Whatever takes space: writes, new files, files that grow."""
    FSYNC = "fsync"
    READ = "read"
    """Reads into the broker; what sendfile(2) does, the kernel does alone."""


@dataclass(frozen=True, slots=True)
class Occasions:
    """Which of the matching requests are struck; all that is given must hold."""

    every: int = 1
    """Each so many-th match."""
    probability: float = 1.0
    seed: int = 0
    """Of the random choices, which depend on nothing else but the rule's name."""
    first: int | None = None
    """At most so many times."""
    from_ms: float = 0.0
    """Only from so long after the rule was set (or after its period began)."""
    until_ms: float | None = None
    """Only until so long after that."""
    period_ms: float | None = None
    """Begin again after so long."""


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One fault. An empty collection leaves its question open: no ``topics`` means any request.

    ``topics``, ``clients`` and ``listeners`` may contain ``*`` for any text. A rule with ``disk`` strikes files, others
    strike requests.
    """

    action: Action
    moment: Moment = Moment.REQUEST
    delay_ms: tuple[float, float] = (0.0, 0.0)
    """Least and most; between them chance decides."""
    error: ErrorCode = ErrorCode.NONE
    errno: int = 0
    kept_bytes: int = 0
    """What is left of a truncated answer, its length prefix not counted."""
    apis: frozenset[AnyApiKey] = frozenset()
    topics: tuple[str, ...] = ()
    partitions: frozenset[int] = frozenset()
    clients: tuple[str, ...] = ()
    listeners: tuple[str, ...] = ()
    brokers: frozenset[int] = frozenset()
    """Node ids of the brokers whose requests are struck."""
    isolated: frozenset[int] = frozenset()
    """Node ids of the brokers between which and all others requests are struck, both ways."""
    disk: DiskOperation | None = None
    directories: tuple[str, ...] = ()
    """Log directories."""
    occasions: Occasions = Occasions()

    @property
    def names_places(self) -> bool:
        """Whether it is about some topics or partitions rather than about whole requests."""
        return bool(self.topics or self.partitions)

    def is_between(self, here: int, peer: int | None) -> bool:
        """Whether requests of broker ``peer`` to broker ``here`` are struck, as far as `isolated` tells."""
        return not self.isolated or (peer is not None and (here in self.isolated) != (peer in self.isolated))

    def concerns_place(self, topic: str, partition: int | None) -> bool:
        """Whether it strikes a request that speaks of a partition, or of all partitions of a topic (None)."""
        return (not self.topics or fits(self.topics, topic)) and (
            not self.partitions or partition is None or partition in self.partitions
        )

    def strikes_place(self, topic: str | None, partition: int | None) -> bool:
        """Whether it strikes what a request says about a partition, or about a topic as a whole (None)."""
        if self.partitions and partition not in self.partitions:
            return False
        return not self.topics or (topic is not None and fits(self.topics, topic))


def fits(patterns: tuple[str, ...], text: str) -> bool:
    """Whether one of the patterns, in which ``*`` stands for any text, is the text."""
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
