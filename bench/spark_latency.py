"""The time from a record's timestamp to the commit of the version of a Delta table that has it, under a steady load."""

from __future__ import annotations

import json
import statistics
import time
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import trio
from pyarrow import parquet

from bench.one_broker import OneBroker
from bench.repeated_topic import empty_topic
from bench.spark_process import SparkProcess
from gregor.client import Producer

RATE = 1_000
"""Records in a second."""
STEP_S = 0.005
VALUE = bytes(range(100))
TOPIC = "latency"
WAIT_LIMIT_S = 120.0
LOOK_EVERY_S = 0.2


async def send_steadily(bootstrap: str, partitions: int, seconds: float) -> int:
    """Send RATE records in a second, to all partitions in turn; return their number."""
    sent = 0
    async with Producer(bootstrap) as producer:
        started = trio.current_time()
        while sent < RATE * seconds:
            due = int((trio.current_time() - started) * RATE)
            while sent < due:
                await producer.send(TOPIC, VALUE, partition=sent % partitions)
                sent += 1
            await trio.sleep(STEP_S)
    return sent


def table_latencies(table: Path) -> tuple[list[float], int]:
    """Return the latency of each row of a Delta table in seconds, and the number of versions with rows.

    The time of a commit is the time at which its file in the log was written.
    """
    latencies: list[float] = []
    versions = 0
    for commit in sorted((table / "_delta_log").glob("*.json")):
        written_s = commit.stat().st_mtime
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        added = [action["add"]["path"] for action in actions if "add" in action]
        for path in added:
            stamps = parquet.read_table(table / unquote(path), columns=["timestamp"])["timestamp"]
            latencies += [written_s - micros / 1e6 for micros in stamps.cast("int64").to_pylist()]
        versions += bool(added)
    return latencies, versions


def measure_latency(
    spark: SparkProcess, broker: OneBroker, table: Path, partitions: int, seconds: float
) -> dict[str, float]:
    """Follow an empty topic while records are sent for `seconds`; return latencies and costs.

    The query runs, and has written a first record, before the costs are counted. Raises RuntimeError if records do not
    reach the table.
    """
    trio.run(partial(empty_topic, broker.bootstrap, TOPIC, partitions))
    spark.ask(f"follow {TOPIC} {table}")
    first = 0
    while not (table / "_delta_log").is_dir() or not table_latencies(table)[0]:
        # A query that begins at `latest` may have begun after the record before.
        first += trio.run(send_steadily, broker.bootstrap, partitions, 1 / RATE)
        time.sleep(LOOK_EVERY_S * 5)
    time.sleep(LOOK_EVERY_S * 5)
    before, versions_before = table_latencies(table)
    with spark.costs([broker]) as costs:
        sent = trio.run(send_steadily, broker.bootstrap, partitions, seconds)
        deadline = time.monotonic() + WAIT_LIMIT_S
        while len(table_latencies(table)[0]) < len(before) + sent:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{sent} records were sent, and not all are in {table}")
            time.sleep(LOOK_EVERY_S)
    spark.ask(f"stop {TOPIC} {table}")
    latencies, versions = table_latencies(table)
    # The first rows of the log are those of the warm-up.
    measured = latencies[len(before) :]
    centiles = statistics.quantiles(measured, n=100)
    return {
        **costs,
        "records": sent,
        "p50_s": centiles[49],
        "p99_s": centiles[98],
        "max_s": max(measured),
        "versions": versions - versions_before,
    }
