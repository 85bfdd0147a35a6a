"""``python -m bench.append``: the costs of appending batches of a megabyte, compressed and uncompressed.

The first table stays in this process: the append of a batch as it was produced, beside decompressing and compressing it
again, which is what brokers did before offsets inside a batch were relative (KAFKA-527). The second one sends the same
batches to Gregor and to Apache Kafka 3.9.1, turn by turn, five requests in flight. Medians; lowest and highest in
brackets.
"""

from __future__ import annotations

import argparse
import random
import statistics
import struct
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from bench.broker_pair import BenchBroker, broker_pair
from bench.conversion import WORDS
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec, compress, decompress
from gregor.protocol.records.record import Record
from gregor.protocol.records.validation import AppendRules, validate
from gregor.storage.clock import SystemClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.wire import Wire

RECORD_BYTES = 1_000
RECORDS = 1_000
IN_FLIGHT = 5
PRODUCE_VERSION = 7


def megabyte_batch(codec: Codec) -> bytes:
    """Return a v2 batch of log-like text with current timestamps."""
    now_ms = SystemClock().now_ms()
    text = b" ".join(random.Random(527).choices(WORDS, k=RECORDS * RECORD_BYTES // 3))
    return v2.build_batch(
        [
            Record(index, now_ms, None, text[index * RECORD_BYTES : (index + 1) * RECORD_BYTES])
            for index in range(RECORDS)
        ],
        codec=codec,
    )


def milliseconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the CPU time in milliseconds of each run, in this thread."""
    work()
    figures = []
    for _ in range(repeats):
        begin = time.thread_time()
        work()
        figures.append((time.thread_time() - begin) * 1e3)
    return figures


def spread(figures: list[float], form: str = ",.2f") -> str:
    """Format the median, with the range in brackets."""
    return f"{statistics.median(figures):{form}} ({min(figures):{form}}-{max(figures):{form}})"


def compare_in_process(scratch: Path, repeats: int) -> None:
    """Print the first table."""
    print("| codec | bytes | append, CPU ms | of that checking | decompress + compress | append with it |")
    print("|" + " --- |" * 6)
    for codec in Codec:
        log = PartitionLog.open(str(scratch / f"{codec.name.lower()}-0"), LogConfig(), SystemClock())
        batch = megabyte_batch(codec)
        rules = AppendRules(max_message_bytes=2 * RECORDS * RECORD_BYTES)

        def append(log: PartitionLog = log, batch: bytes = batch, rules: AppendRules = rules) -> None:
            # A copy: the append numbers the batch in place.
            log.append(validate(bytearray(batch), rules, now_ms=0), leader_epoch=0)

        def compress_again(codec: Codec = codec, records: bytes = batch[v2.RECORDS_AT :]) -> None:
            compress(codec, decompress(codec, records))

        def check(batch: bytes = batch, rules: AppendRules = rules) -> None:
            validate(batch, rules, now_ms=0)

        ours, checking, theirs = (milliseconds(work, repeats) for work in (append, check, compress_again))
        log.abandon()
        times = 1 + statistics.median(theirs) / statistics.median(ours)
        print(
            f"| {codec.name.lower()} | {len(batch):,} | {spread(ours)} | {spread(checking)} | {spread(theirs)} "
            f"| {times:.1f} times |"
        )


class Load:
    """The load of one broker: batches of one codec to one topic."""

    def __init__(self, broker: BenchBroker, codec: Codec, topic: str) -> None:
        self._broker = broker
        self._wire = Wire(broker.address, timeout=60)
        config = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        self._wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[config], timeout_ms=30_000))
        data = PartitionProduceData(index=0, records=megabyte_batch(codec))
        request = ProduceRequest(
            acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        self._frame = self._wire.frame(ApiKey.PRODUCE, PRODUCE_VERSION, request)
        self._topic_bytes = len(topic)

    def run(self, batches: int) -> tuple[float, float]:
        """Send batches; return MB/s before compression, and the broker's CPU milliseconds per batch."""
        cpu_before, begin = self._broker.cpu_seconds(), time.perf_counter()
        for number in range(batches + IN_FLIGHT):
            if number >= IN_FLIGHT:
                self._receive()
            if number < batches:
                self._wire.socket.sendall(self._frame)
        elapsed = time.perf_counter() - begin
        cpu_ms = (self._broker.cpu_seconds() - cpu_before) * 1e3 / batches
        return RECORDS * RECORD_BYTES * batches / elapsed / 1e6, cpu_ms

    def _receive(self) -> None:
        frame = self._wire.receive_frame()
        # The error follows the correlation id, one topic and its name, one partition and its index.
        (error,) = struct.unpack_from(">h", frame, 4 + 4 + 2 + self._topic_bytes + 4 + 4)
        if error:
            raise RuntimeError(f"{self._broker.name} refuses a batch: error {error}")


def compare_brokers(scratch: Path, rounds: int, batches: int) -> None:
    """Print the second table."""
    results: defaultdict[tuple[Codec, str], list[tuple[float, float]]] = defaultdict(list)
    with broker_pair(scratch, "log.retention.bytes=500000000", "log.segment.bytes=100000000") as brokers:
        for broker in brokers:
            broker.start()
        loads = {
            (codec, broker.name): Load(broker, codec, f"append-{codec.name.lower()}")
            for codec in Codec
            for broker in brokers
        }
        for number in range(rounds + 1):
            for key, load in loads.items():
                figures = load.run(batches)
                # A JVM needs one round to warm up.
                if number:
                    results[key].append(figures)
        print("| codec | broker | MB/s | broker CPU ms per MB |\n|" + " --- |" * 4)
        for (codec, name), rounds_of_it in results.items():
            rates, cpu = ([figures[place] for figures in rounds_of_it] for place in (0, 1))
            print(f"| {codec.name.lower()} | {name} | {spread(rates, ',.0f')} | {spread(cpu)} |")


def main() -> int:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=200, help="to each broker and codec in each round")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gregor-bench-") as scratch:
        compare_in_process(Path(scratch), repeats=50)
        print()
        compare_brokers(Path(scratch), options.rounds, options.batches)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
