"""KIP-794's two test series: a slow broker among three, four partitioners, 1 and 2 MB/s.

    python -m bench.kip794                      our producer
    python -m bench.kip794 --java               the producer of Kafka 3.9.1 too (needs ../shared)

Prints a table of throughput, latency percentiles, megabytes by broker and the slow one's share, beside the KIP's own.
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

from bench.three_brokers import BROKER_IDS, create_topic, records_by_broker, slow_down, three_brokers
from gregor.client import Delivery, Producer
from gregor.client.producer.partitioner import StickyPartitioner
from gregor.command_line.perf_latency import BYTES_PER_MB, LatencyStatistics, percentiles
from gregor.command_line.perf_producer import Throttle

KAFKA = Path(__file__).resolve().parents[2] / "shared" / "peer" / "kafka39"
RECORD_BYTES = 512
RECORD_COUNT = 122_880
DELAY_MS = 20
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
    """The partitioner of KIP-480: it keeps a partition until a new batch would start, then draws any other
    partition.
    """

    def is_due(self, next_bytes: float, fits_open_batch: bool) -> bool:
        """Return True when the record does not fit into the open batch."""
        return self.partition < 0 or not fits_open_batch

    def switch(self, partitions: object, weights: object = None) -> int:
        """Draw one of the other partitions, uniformly."""
        others = [p for p in range(len(BROKER_IDS)) if p != self.partition]
        self.partition = self._random.choice(others)
        return self.partition


@dataclass
class Row:
    """A line of the table."""

    producer: str
    rate: int
    variant: str
    records_per_s: float
    mb_per_s: float
    average_ms: float
    percentiles_ms: list[float]
    node_mb: list[float]
    share: float
    """The slow broker's share of the records; in the KIP, which does not state that, of the bytes."""
    requests: float | None = None

    def markdown(self) -> str:
        p50, p95, p99, p999 = (f"{value:.0f}" for value in self.percentiles_ms)
        megabytes = " | ".join(f"{value:.1f}" for value in self.node_mb)
        requests = "" if self.requests is None else f"{self.requests:.0f}"
        return (
            f"| {self.producer} | {self.rate} | {self.variant} | {self.records_per_s:.0f} | {self.mb_per_s:.2f} "
            f"| {self.average_ms:.1f} | {p50} | {p95} | {p99} | {p999} | {megabytes} | {self.share:.3f} | {requests} |"
        )


def _of_the_kip(
    rate: int, variant: str, rates: tuple[float, float], latencies: tuple[float, ...], node_mb: tuple[float, ...]
) -> Row:
    average, *of_percent = latencies
    return Row("the KIP", rate, variant, *rates, average, of_percent, list(node_mb), node_mb[0] / sum(node_mb))


KIP_ROWS = (
    _of_the_kip(2048, "old sticky", (1725, 0.84), (4072.7, 3870, 10221, 10992, 11214), (46.8, 9.2, 9.0)),
    _of_the_kip(2048, "adaptive off", (2043, 1.00), (49.9, 8, 150, 214, 422), (22.2, 21.6, 22.2)),
    _of_the_kip(2048, "all defaults", (2045, 1.00), (40.1, 7, 141, 154, 220), (19.2, 23.6, 23.3)),
    _of_the_kip(2048, "availability 5 ms", (2044, 1.00), (36.3, 6, 138, 150, 184), (17.4, 25.8, 23.0)),
    _of_the_kip(4096, "adaptive off", (3789, 1.85), (426.2, 8, 2065, 2408, 2468), (22.4, 21.7, 21.4)),
    _of_the_kip(4096, "all defaults", (4078, 1.99), (34.7, 4, 143, 167, 297), (14.9, 25.2, 25.6)),
)
"""The figures in the KIP's text; it has no other row for 2 MB/s."""

HEAD = (
    "| producer | rec/s asked | partitioner | rec/s | MB/s | avg ms | p50 | p95 | p99 | p99.9 | slow node MB "
    "| node MB | node MB | slow share | requests |\n|" + " --- |" * 15
)


async def measure_ours(bootstrap: str, rate: int, variant: str, count: int) -> Row:
    """Send at `rate` and record the time of each acknowledgement."""
    topic = f"ours-{uuid4().hex[:8]}"
    await create_topic(bootstrap, topic)
    noise = bytes(choices(range(65, 91), k=4 * RECORD_BYTES))
    async with Producer(bootstrap, **VARIANTS[variant]) as producer:
        if variant == "old sticky":
            # Deliberately not available by configuration.
            producer._accumulator.new_sticky = OldStickyPartitioner
        await producer.partitions_for(topic)
        statistics = LatencyStatistics(count, trio.current_time())
        sent: list[tuple[Delivery, float]] = []
        throttle = Throttle(rate)
        random = Random(1)
        for index in range(count):
            start = random.randrange(3 * RECORD_BYTES)
            sent.append((await producer.send(topic, noise[start : start + RECORD_BYTES]), trio.current_time()))
            # The sender of the Java producer is a thread, which takes a batch while the caller sends the next record.
            # The old logic depends on that: a batch that is still there would keep its fast partition longer.
            await trio.lowlevel.checkpoint()
            await throttle.pace(index + 1)
        await producer.flush()
        elapsed = trio.current_time() - statistics.started_at
        latencies = [(delivery.finished_at - at) * 1000 for delivery, at in sent]
        metrics = producer.metrics()
    counts = await records_by_broker(bootstrap, topic)
    return Row(
        "gregor",
        rate,
        variant,
        count / elapsed,
        count * RECORD_BYTES / elapsed / BYTES_PER_MB,
        sum(latencies) / len(latencies),
        percentiles(latencies, (0.5, 0.95, 0.99, 0.999)),
        [metrics.value("outgoing-byte-total", node=f"node-{node}") / 1e6 for node in BROKER_IDS],
        counts[0] / count,
        sum(metrics.value("request-total", node=f"node-{node}") for node in BROKER_IDS),
    )


async def measure_java(bootstrap: str, rate: int, variant: str, count: int) -> Row:
    """Measure the same rate with Kafka's own ProducerPerformance."""
    topic = f"java-{uuid4().hex[:8]}"
    await create_topic(bootstrap, topic)
    properties = [f"bootstrap.servers={bootstrap}"]
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
    counts = await records_by_broker(bootstrap, topic)
    return Row(
        "Java 3.9.1",
        rate,
        variant,
        float(figures["rate"]),
        float(figures["mb"]),
        float(figures["avg"]),
        [float(figures[name]) for name in ("p50", "p95", "p99", "p999")],
        [node_bytes.get(node, 0.0) / 1e6 for node in BROKER_IDS],
        counts[0] / count,
        float(requests[-1]) if requests else 0.0,
    )


def main() -> int:
    """Run all requested rows and print the table line by line."""
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
    with three_brokers() as bootstrap:
        trio.run(slow_down, bootstrap, DELAY_MS)
        for rate in map(int, arguments.rates.split(",")):
            for variant in arguments.variants.split(","):
                for row in KIP_ROWS:
                    if (row.rate, row.variant) == (rate, variant):
                        print(row.markdown(), flush=True)
                print(trio.run(measure_ours, bootstrap, rate, variant, arguments.records).markdown(), flush=True)
                if arguments.java:
                    print(trio.run(measure_java, bootstrap, rate, variant, arguments.records).markdown(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
