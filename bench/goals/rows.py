"""The goals of speed: a bound for each figure of each kind of work, and the comparison of measured values with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

GREGOR, KAFKA = "gregor", "kafka391"
"""The names of the brokers in `Rounds`."""

Rounds = dict[tuple[str, str], dict[str, list[float]]]
"""The values of all rounds, by (work, figure) and then by broker."""

MORE_IS_BETTER = {"MB/s", "records/s", "requests/s"}


@dataclass(frozen=True)
class Goal:
    """A bound for one figure of one kind of work: a ratio to Kafka's figure, or a value of Gregor's own."""

    group: str
    """The measurement that finds the figure: a name of `measuring.GROUPS`."""
    work: str
    figure: str
    bound: float
    is_ratio: bool = True

    @property
    def wants_more(self) -> bool:
        """Whether the bound is a minimum, as for MB/s, rather than a maximum, as for CPU time."""
        return self.figure in MORE_IS_BETTER

    def reached_by(self, value: float) -> bool:
        """Return whether a ratio, or a value if the goal is no ratio, meets the bound."""
        return value >= self.bound if self.wants_more else value <= self.bound


@dataclass(frozen=True)
class Result:
    """A comparison of the values of each round with the goal's bound."""

    goal: Goal
    gregor: Sequence[float]
    kafka: Sequence[float]

    @property
    def measured(self) -> float | None:
        """The ratio of the medians, or Gregor's median if the goal is no ratio; None if a broker has no value."""
        if not self.gregor or (self.goal.is_ratio and (not self.kafka or not median(self.kafka))):
            return None
        own = median(self.gregor)
        return own / median(self.kafka) if self.goal.is_ratio else own

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or ``not measured``."""
        measured = self.measured
        if measured is None:
            return "not measured"
        return "met" if self.goal.reached_by(measured) else "missed"


def _conversion(group: str, work: str, speed: str, faster: float, cpu: str, cheaper: float) -> list[Goal]:
    return [Goal(group, work, speed, faster), Goal(group, work, cpu, cheaper)]


def _fetch(work: str, faster: float, cheaper: float) -> list[Goal]:
    goals = _conversion("convert", work, "MB/s", faster, "CPU s/GB", cheaper)
    return [*goals, Goal("convert", work, "first byte, p50 ms", 1.0)]


def _small(work: str) -> list[Goal]:
    bounds = (("requests/s", 1.5), ("CPU us", 0.5), ("p99 ms", 1.0))
    return [Goal("small", work, figure, bound) for figure, bound in bounds]


FETCH = "Fetch v{}, 1 kB records"
SIX_CONNECTIONS = "Fetch v11, six connections"
COMPRESSED = "Fetch v{}, stored as {}"
THREE_REPLICAS = "three replicas, acks=all, one connection"
START = "start"
INSTALLATION = "make run in a fresh clone"
IDLE = "three idle brokers, {} partitions"
IDLE_PARTITIONS = (0, 1000)

GOALS: tuple[Goal, ...] = (
    *_fetch(FETCH.format(3), 2.5, 0.4),
    *_fetch(FETCH.format(1), 2.5, 0.4),
    *_fetch(FETCH.format(11), 1.2, 1.0),
    *_conversion("connections", SIX_CONNECTIONS, "MB/s", 1.2, "CPU s/GB", 1.0),
    *(
        goal
        for version in (3, 1)
        for codec, faster, cheaper in (("lz4", 2.0, 0.5), ("snappy", 2.0, 0.5), ("gzip", 5.0, 0.2))
        for goal in _conversion(
            "compressed", COMPRESSED.format(version, codec), "records/s", faster, "CPU us a record", cheaper
        )
    ),
    Goal("produce", "produce, 16 kB batches", "MB/s", 1.5),
    Goal("produce", "produce, lz4", "MB/s", 1.5),
    *_small("one record a request, 1 connection"),
    *_small("the same, 8 connections"),
    *_small("the same, 4 connections, 16 in flight"),
    Goal("e2e", "a record to a v11 consumer, 1,000/s", "p50 ms", 1.0),
    Goal("e2e", "a record to a v3 consumer, 1,000/s", "p50 ms", 1.0),
    Goal("slow", "50 slow v3 consumers", "slowest first byte, ms", 1.0),
    Goal("slow", "50 slow v3 consumers", "peak RSS, MiB", 1 / 6),
    Goal("replicated", THREE_REPLICAS, "requests/s", 1.5),
    Goal("replicated", THREE_REPLICAS, "p50 ms", 1.0),
    Goal("startup", START, "exec to first answer, s", 0.15, is_ratio=False),
    Goal("startup", START, "idle RSS, MiB", 35.0, is_ratio=False),
    Goal("idle", IDLE.format(0), "CPU s a minute", 0.38, is_ratio=False),
    Goal("idle", IDLE.format(1000), "CPU s a minute", 2.3, is_ratio=False),
    Goal("install", INSTALLATION, "s until serving", 20.0, is_ratio=False),
)


def results(goals: Sequence[Goal], rounds: Mapping[tuple[str, str], Mapping[str, list[float]]]) -> list[Result]:
    """Return a result for each goal; one whose figure is not in `rounds` has no values."""
    found = []
    for goal in goals:
        values = rounds.get((goal.work, goal.figure), {})
        found.append(Result(goal, values.get(GREGOR, []), values.get(KAFKA, [])))
    return found
