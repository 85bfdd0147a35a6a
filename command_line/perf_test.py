"""`gregor perf-test`: how fast records go in and out, with the options and output lines of Kafka's own perf tools."""

from __future__ import annotations

import argparse

from .asking import add_connection_options
from .perf_consumer import run_consumer
from .perf_producer import run_producer


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add this command, with one of its own for each direction, to the program's."""
    parser = subparsers.add_parser("perf-test", help="measure producing and consuming")
    directions = parser.add_subparsers(dest="direction", required=True, metavar="producer | consumer")
    _add_producer(directions)
    _add_consumer(directions)


def _add_producer(directions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("producer", help="as kafka-producer-perf-test")
    add_connection_options(parser, "--producer.config", "--command-config")
    parser.add_argument("--topic", required=True, help="where the records go")
    parser.add_argument("--num-records", type=int, required=True, metavar="N", help="how many")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, metavar="BYTES", help="random values of that size")
    payload.add_argument("--payload-file", metavar="FILE", help="values drawn from the lines of a file")
    payload.add_argument("--payload-monotonic", action="store_true", help="values 0, 1, 2...")
    parser.add_argument(
        "--throughput", type=float, default=-1, metavar="N", help="records per second at most (default: no limit)"
    )
    parser.add_argument(
        "--producer-props", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="producer settings"
    )
    parser.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    parser.add_argument("--transactional-id", default="performance-producer-default-transactional-id", metavar="ID")
    parser.add_argument(
        "--transaction-duration-ms", type=int, default=0, metavar="MS", help="use transactions of that length"
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw throughput and latency over time")
    parser.add_argument("--latencies", metavar="FILE", help="write each record's latency (ms), one a line")
    parser.set_defaults(run=run_producer)


def _add_consumer(directions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("consumer", help="as kafka-consumer-perf-test")
    add_connection_options(parser, "--consumer.config", "--command-config")
    parser.add_argument("--topic", required=True, help="what to read")
    parser.add_argument("--messages", type=int, required=True, metavar="N", help="how many records")
    parser.add_argument("--group", help="the consumer group (default: one of its own)")
    parser.add_argument("--timeout", type=int, default=10_000, metavar="MS", help="give up after so long without any")
    parser.add_argument("--reporting-interval", type=int, default=5_000, metavar="MS", help="for --show-detailed-stats")
    parser.add_argument("--show-detailed-stats", action="store_true", help="a line for each interval")
    parser.add_argument("--hide-header", action="store_true", help="no line with the columns' names")
    parser.add_argument("--from-latest", action="store_true", help="start with new records only")
    parser.add_argument("--print-metrics", action="store_true", help="print the consumer's metrics at the end")
    parser.set_defaults(run=run_consumer)
