"""The producer of `gregor perf-test`."""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import trio

from ..client.config import ProducerConfig
from ..client.producer.appending_cy import Delivery
from ..client.producer.producer import Producer
from ..protocol.errors import BrokerError
from .asking import UsageError, client_properties, run_client, say
from .perf_latency import LatencyStatistics
from .perf_plot import write_plot
from .progress import ProgressBar

RANDOM_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
UNANSWERED_AT_MOST = 100_000
SHORTEST_SLEEP_SECONDS = 0.002


def run_producer(arguments: argparse.Namespace) -> int:
    """Send the requested number of records, then print throughput and latencies."""

    async def work() -> None:
        properties = client_properties(arguments, arguments.producer_props, client=ProducerConfig)
        servers = _servers(arguments)
        if arguments.transaction_duration_ms > 0:
            properties["transactional.id"] = arguments.transactional_id
        values = _values(arguments)
        async with Producer(servers, **properties) as producer:
            await producer.partitions_for(arguments.topic)
            statistics = LatencyStatistics(arguments.num_records, trio.current_time())
            with ProgressBar(arguments.num_records, "records") as progress:
                await _send_all(producer, arguments, values, statistics, progress)
            say(statistics.total_line(trio.current_time()))
            if arguments.print_metrics:
                _print_metrics(producer)
        _write_files(arguments, statistics)

    return run_client(work, _servers(arguments))


def _servers(arguments: argparse.Namespace) -> str:
    """Return bootstrap.servers of the properties, else --bootstrap-server, as in Kafka's tool."""
    for assignment in arguments.producer_props:
        key, _, value = assignment.partition("=")
        if key == "bootstrap.servers":
            return str(value)
    return str(arguments.bootstrap_server)


def _values(arguments: argparse.Namespace) -> Iterator[bytes]:
    if arguments.payload_monotonic:
        return (str(number).encode() for number in range(arguments.num_records))
    if arguments.payload_file is not None:
        try:
            lines = Path(arguments.payload_file).read_bytes().splitlines()
        except OSError as error:
            raise UsageError(f"--payload-file: {error}") from error
        if not lines:
            raise UsageError(f"--payload-file: {arguments.payload_file} is empty")
        return iter(lambda: random.choice(lines), None)
    if arguments.record_size <= 0:
        raise UsageError("--record-size must be at least 1")
    # One value for all records would compress too well; slices of a few kilobytes of noise do not.
    noise = bytes(random.choices(RANDOM_LETTERS, k=4 * arguments.record_size))
    last_start = len(noise) - arguments.record_size
    size = arguments.record_size
    return iter(lambda: noise[(start := random.randrange(last_start)) : start + size], None)


async def _send_all(
    producer: Producer,
    arguments: argparse.Namespace,
    values: Iterator[bytes],
    statistics: LatencyStatistics,
    progress: ProgressBar,
) -> None:
    """Send at the given rate while another task awaits the acknowledgements."""
    to_watch, watched = trio.open_memory_channel[tuple[Delivery, float, int]](UNANSWERED_AT_MOST)
    throttle = Throttle(arguments.throughput)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_watch, watched, statistics, progress)
        sent = 0
        async with to_watch:
            while sent < arguments.num_records:
                has_transactions = arguments.transaction_duration_ms > 0
                end = trio.current_time() + arguments.transaction_duration_ms / 1000
                async with producer.transaction() if has_transactions else nullcontext():
                    while sent < arguments.num_records and (not has_transactions or trio.current_time() < end):
                        value = next(values)
                        sent_at = trio.current_time()
                        delivery = await producer.send(arguments.topic, value)
                        await _hand_over(to_watch, (delivery, sent_at, len(value)))
                        sent += 1
                        await throttle.pace(sent)
            await producer.flush()


async def _hand_over(
    channel: trio.MemorySendChannel[tuple[Delivery, float, int]], item: tuple[Delivery, float, int]
) -> None:
    """Send an item without a checkpoint, which would cost more than the record, unless the channel is full."""
    try:
        channel.send_nowait(item)
    except trio.WouldBlock:
        await channel.send(item)


async def _watch(
    channel: trio.MemoryReceiveChannel[tuple[Delivery, float, int]],
    statistics: LatencyStatistics,
    progress: ProgressBar,
) -> None:
    """Record the time of each acknowledgement, in the order of sending, which is close to the order of arrival."""
    async for delivery, sent_at, size_bytes in channel:
        if not delivery.is_done:
            await delivery.wait_done()
        if (error := delivery.error) is not None:
            progress.say(f"{type(error).__name__}: {error.code.name if isinstance(error, BrokerError) else error}")
            continue
        finished_at = delivery.finished_at
        window = statistics.record((finished_at - sent_at) * 1000, size_bytes, finished_at)
        progress.advance(statistics.count)
        if window is not None:
            progress.say(window.line)


class Throttle:
    """A limit of the average rate to `per_second` (not positive: no limit), as in Kafka's ThroughputThrottler."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._started_at = trio.current_time()

    async def pace(self, count: int) -> None:
        """Wait until `count` records do not exceed the rate."""
        if self._per_second <= 0:
            return
        ahead = count / self._per_second - (trio.current_time() - self._started_at)
        if ahead > SHORTEST_SLEEP_SECONDS:
            await trio.sleep(ahead)


def _print_metrics(producer: Producer) -> None:
    say()
    for name, value in sorted(producer.metrics().items()):
        say(f"{name!s:<60} : {value:.3f}")


def _write_files(arguments: argparse.Namespace, statistics: LatencyStatistics) -> None:
    if arguments.latencies is not None:
        Path(arguments.latencies).write_text("".join(f"{sample:.3f}\n" for sample in statistics.samples))
    if arguments.plot is not None:
        statistics.end_window(trio.current_time())
        write_plot(Path(arguments.plot), statistics, f"{arguments.topic}: {os.path.basename(sys.argv[0])} perf-test")
