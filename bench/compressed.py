"""``make bench ARGS=compressed``: down-conversion of compressed topics, Gregor and Kafka 3.9.1 in turns.

A topic of 6 partitions for each codec and size of records is filled in 16 kB batches (before compression). The load
driver of ``../shared/bench`` fetches it and decompresses what it reads. Answers differ in size, so the table has
records/s and the broker's CPU time in us for each record: medians with the lowest and the highest round.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.chunks import drive
from bench.one_broker import OneBroker, kafka_broker, one_broker
from bench.side_by_side import SHARED, build_driver

CODECS = ("lz4", "snappy", "gzip")
RECORD_BYTES = (100, 1000)
VERSIONS = (1, 3)
LEADERS_S = 3.0
FETCH_BYTES = str(50 << 20)
Found = dict[tuple[str, int, int, str], list[tuple[float, float]]]
"""Records/s and us of CPU a record in each round, by codec, size of records, version of Fetch and broker."""


def fill(driver: Path, broker: OneBroker, megabytes: int, sizes: Sequence[int] = RECORD_BYTES) -> None:
    """Fill a topic of so many megabytes, before compression, for each codec and size of records, in bytes."""
    for codec in CODECS:
        for size in sizes:
            drive(driver, broker, "create", "--topic", f"{codec}-{size}", "--partitions", "6")
    # Kafka answers a request for a new partition with an error until the partition has its leader.
    time.sleep(LEADERS_S)
    for codec in CODECS:
        for size in sizes:
            topic = ["--topic", f"{codec}-{size}", "--payload", "text"]
            records = ["--records", str(megabytes * 1_000_000 // size), "--size", str(size), "--codec", codec]
            drive(driver, broker, "fill", *topic, *records, "--batch-bytes", "16384")


def measure(driver: Path, brokers: Mapping[str, OneBroker], rounds: int, sizes: Sequence[int] = RECORD_BYTES) -> Found:
    """Fetch all topics from each broker in turn; the first round warms and is not counted."""
    found: Found = {}
    for number in range(rounds + 1):
        for codec in CODECS:
            for size in sizes:
                for version in VERSIONS:
                    topic = ["--topic", f"{codec}-{size}", "--version", str(version), "--loops", "2", "--decompress"]
                    for name, broker in brokers.items():
                        read = drive(driver, broker, "fetch", *topic, "--max-bytes", FETCH_BYTES)
                        if number:
                            row = found.setdefault((codec, size, version, name), [])
                            row.append((read["messages_s"], read["broker_cpu_us_per_message"]))
    return found


def lines(found: Found) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'topic':14}{'Fetch':7}{'broker':14}{'records/s':>32}{'CPU us a record':>24}"
    for (codec, size, version, name), rounds in found.items():
        speeds, costs = [sorted(values) for values in zip(*rounds, strict=True)]
        speed = f"{statistics.median(speeds):,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f})"
        cost = f"{statistics.median(costs):.2f} ({costs[0]:.2f}-{costs[-1]:.2f})"
        yield f"{codec + ' ' + str(size) + ' B':14}{'v' + str(version):7}{name:14}{speed:>32}{cost:>24}"


def main(arguments: list[str]) -> int:
    """Run the measurement and print its table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench compressed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=60, help="records of each topic, before compression")
    options = parser.parse_args(arguments)
    if not (SHARED / "bench").is_dir():
        print("skipped: the load driver is in ../shared, which is not here", file=sys.stderr)
        return 0
    driver = build_driver()
    with one_broker() as gregor, kafka_broker() as kafka:
        brokers = {"Kafka 3.9.1": kafka, "Gregor": gregor}
        for broker in brokers.values():
            fill(driver, broker, options.megabytes)
        print(*lines(measure(driver, brokers, options.rounds)), sep="\n")
    return 0
