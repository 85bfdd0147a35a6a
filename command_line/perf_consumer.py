"""The consumer of `gregor perf-test`."""

from __future__ import annotations

import argparse
import random
from datetime import UTC, datetime

import trio

from ..client.config import ConsumerConfig
from ..client.consumer.consumer import Consumer
from ..protocol.topic_partition import AnyTopicPartition
from .asking import client_properties, run_client, say
from .perf_latency import BYTES_PER_MB
from .progress import ProgressBar

HEADER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


def run_consumer(arguments: argparse.Namespace) -> int:
    """Read the requested number of records, then print the throughput."""

    async def work() -> None:
        properties = {
            "auto.offset.reset": "latest" if arguments.from_latest else "earliest",
            "group.id": arguments.group or f"perf-consumer-{random.randrange(100_000)}",
            **client_properties(arguments, client=ConsumerConfig),
        }
        if not arguments.hide_header:
            say(HEADER)
        async with Consumer(arguments.bootstrap_server, **properties) as consumer:
            run = _Run()
            consumer.subscribe([arguments.topic], on_assigned=run.joined)
            with ProgressBar(arguments.messages, "records") as progress:
                await _read(consumer, arguments, run, progress)
            say(run.line())
            if arguments.print_metrics:
                for name, value in sorted(consumer.metrics().items()):
                    say(f"{name!s:<60} : {value:.3f}")

    return run_client(work, arguments.bootstrap_server)


class _Run:
    """The counters of a run; times are seconds of trio's clock."""

    def __init__(self) -> None:
        self.started_at = trio.current_time()
        self.wall_start = datetime.now(UTC)
        self.joined_at: float | None = None
        self.count = 0
        self.size_bytes = 0

    async def joined(self, _: list[AnyTopicPartition]) -> None:
        if self.joined_at is None:
            self.joined_at = trio.current_time()

    def line(self) -> str:
        """Return the result line of kafka-consumer-perf-test."""
        now = trio.current_time()
        elapsed = max(now - self.started_at, 1e-9)
        rebalance = (self.joined_at or now) - self.started_at
        fetching = max(elapsed - rebalance, 1e-9)
        megabytes = self.size_bytes / BYTES_PER_MB
        return (
            f"{_stamp(self.wall_start)}, {_stamp(datetime.now(UTC))}, {megabytes:.4f}, {megabytes / elapsed:.4f}, "
            f"{self.count}, {self.count / elapsed:.4f}, {rebalance * 1000:.0f}, {fetching * 1000:.0f}, "
            f"{megabytes / fetching:.4f}, {self.count / fetching:.4f}"
        )


async def _read(consumer: Consumer, arguments: argparse.Namespace, run: _Run, progress: ProgressBar) -> None:
    reported_at = run.started_at
    while run.count < arguments.messages:
        records = await consumer.poll(arguments.timeout)
        if not records:
            progress.say(f"WARNING: Exiting before consuming the expected number of messages: {run.count}")
            return
        run.count += len(records)
        run.size_bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)
        progress.advance(run.count)
        if arguments.show_detailed_stats and trio.current_time() - reported_at > arguments.reporting_interval / 1000:
            reported_at = trio.current_time()
            progress.say(run.line())


def _stamp(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}:{moment.microsecond // 1000:03d}"
