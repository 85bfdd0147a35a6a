"""KIP-526: the cost of a producer's metadata with many topics, beside the cost of requesting all topics each time.

    python -m bench.kip526 [--topics 10000] [--plot FILE.svg]

Start-up: one record to each topic, one after the other, as a mirror does that meets them. "All" asks for every topic
that is known whenever it asks, as producers did before the KIP; as that grows with the square of the topics, it is
measured with fewer and computed for all. Steady state: an hour of the same policies with all topics in use and the
default metadata.max.age.ms of 300 s, on a clock that does not wait, at the bytes of an answer and of each of its topics
that were measured.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path

import trio

from bench.one_broker import one_broker
from gregor.client import Admin, Producer
from gregor.client.admin import NewTopic
from gregor.client.producer.metadata_policy import MetadataPolicy
from gregor.command_line.line_plot import Line, Panel, write_line_plot
from gregor.protocol.codec import encode
from gregor.protocol.messages.metadata import MetadataResponse

MAX_AGE_MS = 300_000
STEADY_S = 3_600.0
METADATA_VERSION = 12
CREATED_AT_ONCE = 250
MOST_FOR_ALL = 1_000


class AskForAll(MetadataPolicy):
    """The policy before KIP-526: any request asks for all topics that are known or used."""

    def next_fetch(self, now: float) -> list[str]:
        """Return all topics as soon as one is due."""
        return list(self._topics) if super().next_fetch(now) else []

    def target_fetch_size(self) -> int:
        """Return a size that is never reached: no topic is fetched before it is urgent."""
        return 1 << 30


@dataclass
class Costs:
    """The costs of a phase: requests, their topics, and the bytes of the answers."""

    requests: int = 0
    topics: int = 0
    answer_bytes: int = 0
    overhead_bytes: int = 0
    """The bytes of an answer without topics."""
    largest_bytes: int = 0
    growth: list[tuple[float, float]] = field(default_factory=list)
    """(topics used so far, bytes so far)."""

    def add(self, answer: MetadataResponse) -> None:
        """Add the costs of one answer."""
        size = len(encode(answer, METADATA_VERSION))
        bare = MetadataResponse(
            brokers=answer.brokers, cluster_id=answer.cluster_id, controller_id=answer.controller_id
        )
        self.overhead_bytes = len(encode(bare, METADATA_VERSION))
        self.note(len(answer.topics), size)

    def note(self, topics: int, size: int) -> None:
        """Add an answer of this many topics and bytes."""
        self.requests += 1
        self.topics += topics
        self.answer_bytes += size
        self.largest_bytes = max(self.largest_bytes, size)


async def create(bootstrap: str, names: list[str]) -> None:
    """Create the topics, some hundred per request."""
    async with Admin(bootstrap) as admin:
        existing = set(await admin.list_topics())
        missing = [name for name in names if name not in existing]
        for start in range(0, len(missing), CREATED_AT_ONCE):
            await admin.create_topics([NewTopic(name, 1, 1) for name in missing[start : start + CREATED_AT_ONCE]])


async def start_up(bootstrap: str, names: list[str], policy: type[MetadataPolicy]) -> Costs:
    """Return the costs of sending a record to each topic."""
    costs = Costs()
    async with Producer(bootstrap, batch_size=1) as producer:
        producer._metadata._policy = policy(MAX_AGE_MS, 10**9)
        refresh = producer._cluster.refresh

        async def counted(topics: list[str] | None, *, allow_auto_create: bool = False) -> MetadataResponse:
            answer = await refresh(topics, allow_auto_create=allow_auto_create)
            costs.add(answer)
            return answer

        producer._cluster.refresh = counted  # type: ignore[method-assign,assignment]
        for count, name in enumerate(names, 1):
            await producer.send(name, b"x")
            if count % max(1, len(names) // 50) == 0:
                costs.growth.append((count, costs.answer_bytes))
    return costs


def steady_state(names: list[str], kind: type[MetadataPolicy], measured: Costs) -> Costs:
    """Return the costs of STEADY_S seconds in which every topic is in use, with answers of the measured sizes."""
    overhead = measured.overhead_bytes
    topic_bytes = (measured.answer_bytes - measured.requests * overhead) / measured.topics
    policy = kind(MAX_AGE_MS, 10**9)
    for name in names:
        policy.use(name, 0.0)
    policy.refreshed(names, 0.0)
    costs = Costs()
    now = 0.0
    while now < STEADY_S:
        now = max(policy.next_check_at(now), now + 0.01)
        if topics := policy.next_fetch(now):
            policy.refreshed(topics, now)
            costs.note(len(topics), overhead + int(len(topics) * topic_bytes))
    return costs


def row(name: str, topics: int, phase: str, costs: Costs) -> str:
    """Return a line of the table."""
    return (
        f"| {name} | {topics} | {phase} | {costs.requests} | {costs.topics} | {costs.answer_bytes / 1e6:.3f} "
        f"| {costs.largest_bytes / 1e3:.1f} |"
    )


def extrapolated(costs: Costs, wanted: int) -> Costs:
    """Compute the start-up costs of asking for all: the sum of 1, 2...

    `wanted` topics, at the measured bytes per topic.
    """
    total = wanted * (wanted + 1) // 2
    size = costs.answer_bytes / max(costs.topics, 1)
    growth: Line = [(n, n * (n + 1) / 2 * size) for n in range(wanted // 50, wanted + 1, wanted // 50)]
    return Costs(wanted, total, int(total * size), largest_bytes=int(wanted * size), growth=list(growth))


def main() -> int:
    """Print the table and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    names = [f"topic-{number:05d}" for number in range(arguments.topics)]
    fewer = names[: min(MOST_FOR_ALL, arguments.topics)]
    with one_broker() as broker:
        trio.run(create, broker.bootstrap, names)
        print("| producer | topics | phase | requests | topics asked | answers, MB | largest, kB |\n|" + " --- |" * 7)
        ours = trio.run(start_up, broker.bootstrap, names, MetadataPolicy)
        print(row("KIP-526", len(names), "start-up", ours), flush=True)
        theirs = measured = trio.run(start_up, broker.bootstrap, fewer, AskForAll)
        print(row("all", len(fewer), "start-up", theirs), flush=True)
    if len(names) > len(fewer):
        theirs = extrapolated(theirs, len(names))
        print(row("all", len(names), "start-up, computed", theirs))
    for name, kind in (("KIP-526", MetadataPolicy), ("all", AskForAll)):
        print(row(name, len(names), "one hour after", steady_state(names, kind, measured)))
    if arguments.plot is not None:
        lines = {"asking for all": theirs.growth, "KIP-526": ours.growth}
        title = f"Metadata while a producer meets {len(names)} topics"
        write_line_plot(arguments.plot, title, [Panel("topics met", "bytes of answers", lines, is_logarithmic=True)])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
