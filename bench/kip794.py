"""KIP-794's two test series: a slow broker among three, four partitioners, 1 and 2 MB/s.

    python -m bench.kip794                      our producer
    python -m bench.kip794 --java               the producer of Kafka 3.9.1 too (needs ../shared)

Prints a table as in the KIP: throughput, latency percentiles, megabytes by broker and the slow one's share.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random, choices
from typing import Any
from uuid import uuid4

import trio

from bench.slow_cluster import Ports, create_topic, records_by_node, slow_cluster
from gregor.broker.command_line.perf_latency import BYTES_PER_MB, LatencyStatistics, percentiles
from gregor.broker.command_line.perf_producer import Throttle
from gregor.client import Delivery, Producer
from gregor.client.partitioner import StickyPartitioner

KAFKA = Path(__file__).resolve().parents[2] / "shared" / "peer" / "kafka39"
RECORD_BYTES = 512
RECORD_COUNT = 122_880
VARIANTS: dict[str, dict[str, Any]] = {
    "old sticky": {},
    "adaptive off": {"partitioner_adaptive_partitioning_enable": False},
    "all defaults": {},
    "availability 5 ms": {"partitioner_availability_timeout_ms": 5},
}
OLD_PARTITIONER = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
JAVA_LINE = re.compile(
    r"(?P<rate>[\d.]+) records/sec \((?P<mb>[\d.]+) MB/sec\), (?P<avg>[\d.]+) ms avg latency, [\d.]+ ms max latency, "
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th"
)
JAVA_BYTES = re.compile(r"outgoing-byte-total:\{client-id=[^,]+, node-id=node-(\d)\}\s*: ([\d.]+)")


class OldStickyPartitioner(StickyPartitioner):
    """KIP-480's: stays until a new batch would be begun, and then goes to any other partition."""

    def is_due(self, next_bytes: float, fits_open_batch: bool) -> bool:
        """Due whenever the record does not fit into the open batch."""
        return self.partition < 0 or not fits_open_batch

    def switch(self, partitions: object, weights: object = None) -> int:
        """Draw uniformly among the others."""
        others = [p for p in range(3) if p != self.partition]
        self.partition = self._random.choice(others)
        return self.partition


@dataclass
class Row:
    """One line of the table."""

    producer: str
    rate: int
    variant: str
    records_per_s: float
    mb_per_s: float
    average_ms: float
    percentiles_ms: list[float]
    node_mb: list[float]
    shares: list[float]
    requests: float

    def markdown(self) -> str:
        p50, p95, p99, p999 = (f"{value:.0f}" for value in self.percentiles_ms)
        megabytes = " | ".join(f"{value:.1f}" for value in self.node_mb)
        return (
            f"| {self.producer} | {self.rate} | {self.variant} | {self.records_per_s:.0f} | {self.mb_per_s:.2f} "
            f"| {self.average_ms:.1f} | {p50} | {p95} | {p99} | {p999} | {megabytes} | {self.shares[0]:.3f} "
            f"| {self.requests:.0f} |"
        )


HEAD = (
    "| producer | rec/s asked | partitioner | rec/s | MB/s | avg ms | p50 | p95 | p99 | p99.9 | slow node MB "
    "| node MB | node MB | slow share | requests |\n|" + " --- |" * 15
)


async def measure_ours(ports: Ports, rate: int, variant: str, count: int) -> Row:
    """Send at `rate` and take the time of each acknowledgement."""
    topic = f"ours-{uuid4().hex[:8]}"
    await create_topic(topic, ports)
    noise = bytes(choices(range(65, 91), k=4 * RECORD_BYTES))
    async with Producer(ports.bootstrap, **VARIANTS[variant]) as producer:
        if variant == "old sticky":
            # Not to be had by configuration, on purpose.
            producer._accumulator.new_sticky = OldStickyPartitioner
        await producer.partitions_for(topic)
        statistics = LatencyStatistics(count, trio.current_time())
        sent: list[tuple[Delivery, float]] = []
        throttle = Throttle(rate)
        random = Random(1)
        for index in range(count):
            start = random.randrange(3 * RECORD_BYTES)
            sent.append((await producer.send(topic, noise[start : start + RECORD_BYTES]), trio.current_time()))
            await throttle.pace(index + 1)
        await producer.flush()
        elapsed = trio.current_time() - statistics.started_at
        latencies = [(delivery.finished_at - at) * 1000 for delivery, at in sent]
        metrics = producer.metrics()
    counts = await records_by_node(topic, ports)
    return Row(
        "gregor",
        rate,
        variant,
        count / elapsed,
        count * RECORD_BYTES / elapsed / BYTES_PER_MB,
        sum(latencies) / len(latencies),
        percentiles(latencies, (0.5, 0.95, 0.99, 0.999)),
        [metrics[f"node-{node}.outgoing-byte-total"] / 1e6 for node in range(3)],
        [part / count for part in counts],
        sum(metrics[f"node-{node}.request-total"] for node in range(3)),
    )


async def measure_java(ports: Ports, rate: int, variant: str, count: int) -> Row:
    """The same with Kafka's own ProducerPerformance."""
    topic = f"java-{uuid4().hex[:8]}"
    await create_topic(topic, ports)
    properties = [f"bootstrap.servers={ports.bootstrap}"]
    properties += [f"{key.replace('_', '.')}={str(value).lower()}" for key, value in VARIANTS[variant].items()]
    if variant == "old sticky":
        properties.append(f"partitioner.class={OLD_PARTITIONER}")
    command = [str(KAFKA), "tool", "org.apache.kafka.tools.ProducerPerformance", "--topic", topic]
    command += ["--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", str(rate)]
    command += ["--print-metrics", "--producer-props", *properties]
    done = await trio.run_process(command, capture_stdout=True, stderr=subprocess.DEVNULL)
    out = done.stdout.decode()
    figures = list(JAVA_LINE.finditer(out))[-1]
    node_bytes = {int(node): float(size) for node, size in JAVA_BYTES.findall(out)}
    requests = re.findall(r"producer-metrics:request-total:\{[^}]*\}\s*: ([\d.]+)", out)
    counts = await records_by_node(topic, ports)
    return Row(
        "Java 3.9.1",
        rate,
        variant,
        float(figures["rate"]),
        float(figures["mb"]),
        float(figures["avg"]),
        [float(figures[name]) for name in ("p50", "p95", "p99", "p999")],
        [node_bytes.get(node, 0.0) / 1e6 for node in range(3)],
        [part / count for part in counts],
        float(requests[-1]) if requests else 0.0,
    )


def main() -> int:
    """Run all rows that were asked for and print the table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="2048,4096", help="records per second (default: %(default)s)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="partitioners (default: all)")
    parser.add_argument("--records", type=int, default=RECORD_COUNT)
    parser.add_argument("--java", action="store_true", help="with the producer of Kafka 3.9.1 beside ours")
    arguments = parser.parse_args()
    if arguments.java and not KAFKA.exists():
        print(f"--java needs {KAFKA}", file=sys.stderr)
        return 1
    print(HEAD, flush=True)
    with slow_cluster() as ports:
        for rate in map(int, arguments.rates.split(",")):
            for variant in arguments.variants.split(","):
                print(trio.run(measure_ours, ports, rate, variant, arguments.records).markdown(), flush=True)
                if arguments.java:
                    print(trio.run(measure_java, ports, rate, variant, arguments.records).markdown(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
