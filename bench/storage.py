"""``python -m bench.storage``: the costs of a start, and of look-ups by time in a large log, beside Apache Kafka 3.9.1.

`partitions`: from the start of the process until ListOffsets has answered for every one of many empty partitions, after
a clean stop and after kill -9. `recovery`: the same for one partition with a gigabyte that was never flushed, after
kill -9. `times`: ListOffsets by timestamp in a log of ten gigabytes, most of which are holes in its files: batches of
256 kB whose single record is zeros, written to the directory of a topic while the broker is down. Both brokers accept
such a log.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import struct
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import crc32c

from bench.append import Load
from bench.broker_pair import BenchBroker, broker_pair
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import Record
from tests.wire import Wire

TOPIC = "measured"
MOST_PARTITIONS = 1_000
"""The most partitions of one topic: Kafka creates no more than 10,000 at once."""
LIST_OFFSETS_VERSION = 5
LATEST = -1
ANSWER_LIMIT_S = 600.0

SPARSE_BATCH_BYTES = 256 * 1024
SPARSE_SEGMENT_BYTES = 1 << 30
FIRST_TIMESTAMP, STEP_MS = 1_700_000_000_000, 1_000
LOOK_UPS = 500


def topics_with(partitions: int) -> dict[str, int]:
    """Return names and partition counts of topics that have `partitions` in all."""
    names = [TOPIC, *(f"{TOPIC}-{number}" for number in range(1, -(-partitions // MOST_PARTITIONS)))]
    return {name: min(MOST_PARTITIONS, partitions - number * MOST_PARTITIONS) for number, name in enumerate(names)}


def create_topics(broker: BenchBroker, partitions: int) -> None:
    """Create topics; return when all their partitions have a leader."""
    with Wire(broker.address, timeout=ANSWER_LIMIT_S) as wire:
        for name, count in topics_with(partitions).items():
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=int(ANSWER_LIMIT_S * 1000))
            answer = wire.ask(ApiKey.CREATE_TOPICS, 4, request).topics[0]
            if answer.error_code != ErrorCode.NONE:
                raise RuntimeError(f"{broker.name} makes no {name}: {answer.error_message}")
    wait_for_end_offsets(broker, partitions)


def list_offsets(wire: Wire, partitions: int, timestamp: int) -> list[int]:
    """Return the offset for `timestamp` in each partition. Raises RuntimeError if one has no leader yet."""
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(count)],
        )
        for name, count in topics_with(partitions).items()
    ]
    answer = wire.ask(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, ListOffsetsRequest(replica_id=-1, topics=topics))
    offsets = []
    for topic in answer.topics:
        for partition in topic.partitions:
            if partition.error_code != ErrorCode.NONE:
                raise RuntimeError(f"{topic.name}-{partition.partition_index}: error {partition.error_code}")
            offsets.append(partition.offset)
    return offsets


def wait_for_end_offsets(broker: BenchBroker, partitions: int, *, least: int = 0) -> None:
    """Ask until every partition has returned its end offset, which is at least `least`."""
    deadline = time.monotonic() + ANSWER_LIMIT_S
    while time.monotonic() < deadline:
        with suppress(OSError, RuntimeError), Wire(broker.address, timeout=ANSWER_LIMIT_S) as wire:
            if min(list_offsets(wire, partitions, LATEST)) >= least:
                return
        time.sleep(0.01)
    raise RuntimeError(f"{broker.name} has not told the ends of {partitions} partitions in {ANSWER_LIMIT_S} s")


def seconds_to_answer(broker: BenchBroker, partitions: int, *, least: int = 0) -> str:
    """Start the broker; return the wall-clock and CPU seconds until all end offsets were returned."""
    begin = time.monotonic()
    broker.spawn()
    wait_for_end_offsets(broker, partitions, least=least)
    return f"{time.monotonic() - begin:.1f} | {broker.cpu_seconds():.1f}"


def measure_partitions(broker: BenchBroker, options: argparse.Namespace) -> None:
    """Measure starts with many partitions."""
    broker.start()
    create_topics(broker, options.partitions)
    for how, text in ((signal.SIGTERM, "a clean stop"), (signal.SIGKILL, "kill -9")):
        broker.stop(how)
        report(
            broker, f"{options.partitions:,} partitions, after {text}", seconds_to_answer(broker, options.partitions)
        )


def measure_recovery(broker: BenchBroker, options: argparse.Namespace) -> None:
    """Measure a start with a long unflushed tail."""
    broker.start()
    create_topics(broker, 1)
    Load(broker, Codec.NONE, TOPIC).run(options.tail_megabytes)
    broker.stop(signal.SIGKILL)
    records = options.tail_megabytes * 1000
    report(broker, f"{options.tail_megabytes:,} MB to recover", seconds_to_answer(broker, 1, least=records))


def write_sparse_log(directory: Path, size_bytes: int) -> int:
    """Write segments of batches that are nearly all zeros into a partition's directory; return the number of
    batches.
    """
    for old in directory.glob("0*"):
        old.unlink()
    template = v2.build_batch([Record(0, FIRST_TIMESTAMP, None, bytes(SPARSE_BATCH_BYTES - 80))])
    head = bytearray(template.rstrip(b"\0"))
    zeros = memoryview(template)[len(head) :]
    per_segment = SPARSE_SEGMENT_BYTES // len(template)
    batches = size_bytes // len(template)
    for base in range(0, batches, per_segment):
        in_segment = min(per_segment, batches - base)
        with (directory / f"{base:020d}.log").open("wb") as segment:
            for number in range(in_segment):
                timestamp = FIRST_TIMESTAMP + STEP_MS * (base + number)
                struct.pack_into(">q", head, v2.BASE_OFFSET_AT, base + number)
                struct.pack_into(">qq", head, v2.BASE_TIMESTAMP_AT, timestamp, timestamp)
                crc = crc32c.crc32c(zeros, crc32c.crc32c(head[v2.ATTRIBUTES_AT :]))
                struct.pack_into(">I", head, v2.CRC_AT, crc)
                segment.seek(number * len(template))
                segment.write(head)
            segment.truncate(in_segment * len(template))
    return batches


def measure_times(broker: BenchBroker, options: argparse.Namespace) -> None:
    """Measure look-ups by time after the indexes were built: the first ones after a start, and later ones."""
    broker.start()
    create_topics(broker, 1)
    broker.stop()
    batches = write_sparse_log(broker.log_directory / f"{TOPIC}-0", options.sparse_gigabytes << 30)
    report(broker, f"{options.sparse_gigabytes} GB without indexes", seconds_to_answer(broker, 1, least=batches))
    with Wire(broker.address, timeout=ANSWER_LIMIT_S) as wire:
        # This builds the indexes that are still missing.
        list_offsets(wire, 1, FIRST_TIMESTAMP + STEP_MS * (batches - 1))
    broker.stop()
    broker.start()
    wait_for_end_offsets(broker, 1, least=batches)
    chance = random.Random(4)
    took_ms = []
    with Wire(broker.address, timeout=ANSWER_LIMIT_S) as wire:
        cpu_before = 0.0
        for number in range(LOOK_UPS):
            if number == LOOK_UPS // 2:
                cpu_before = broker.cpu_seconds()
            offset = chance.randrange(batches)
            begin = time.perf_counter()
            found = list_offsets(wire, 1, FIRST_TIMESTAMP + STEP_MS * offset - chance.randrange(STEP_MS))
            took_ms.append((time.perf_counter() - begin) * 1e3)
            if found != [offset]:
                raise RuntimeError(f"{broker.name}: offset {found} instead of {offset}")
        cpu_ms = (broker.cpu_seconds() - cpu_before) * 1e3 / (LOOK_UPS - LOOK_UPS // 2)
    later = took_ms[LOOK_UPS // 2 :]
    report(broker, "the first look-up by time", f"{took_ms[0] / 1e3:.4f} | ")
    report(
        broker,
        f"the last {len(later)} of {LOOK_UPS}, median",
        f"{statistics.median(later) / 1e3:.5f} | {cpu_ms / 1e3:.5f}",
    )


def report(broker: BenchBroker, what: str, figures: str) -> None:
    """Print one line of the table."""
    print(f"| {what} | {broker.name} | {figures} |", flush=True)


MEASUREMENTS = {"partitions": measure_partitions, "recovery": measure_recovery, "times": measure_times}
SETTINGS = {
    "partitions": (),
    "recovery": ("log.segment.bytes=2000000000", "log.retention.ms=-1"),
    "times": ("log.retention.ms=-1", "log.message.timestamp.type=CreateTime"),
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measurements", nargs="*", choices=[*MEASUREMENTS, []], help="all by default")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--tail-megabytes", type=int, default=1_000)
    parser.add_argument("--sparse-gigabytes", type=int, default=10)
    options = parser.parse_args()
    print("| what | broker | seconds | broker CPU s |\n|" + " --- |" * 4)
    for name in options.measurements or MEASUREMENTS:
        with (
            tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch,
            broker_pair(Path(scratch), *SETTINGS[name]) as brokers,
        ):
            for broker in brokers:
                MEASUREMENTS[name](broker, options)
                broker.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
