"""`gregor perf-test`: producer and consumer throughput, with the options and output lines of Kafka's perf tools."""

from __future__ import annotations

import argparse

from .asking import add_connection_options
from .perf_consumer import run_consumer
from .perf_producer import run_producer

EXAMPLES = """\
examples:
  gregor perf-test producer --topic load --num-records 1000000 --record-size 100 --throughput 50000
  gregor perf-test consumer --topic load --messages 1000000
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parsers of this command and of its two directions."""
    parser = subparsers.add_parser(
        "perf-test",
        help="measure producing and consuming",
        epilog=EXAMPLES,
    )
    directions = parser.add_subparsers(dest="direction", required=True, metavar="producer | consumer")
    _add_producer(directions)
    _add_consumer(directions)


def _add_producer(directions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("producer", help="measure producing, as kafka-producer-perf-test does")
    add_connection_options(parser, "--producer.config", "--command-config")
    parser.add_argument("--topic", required=True, help="topic to send records to")
    parser.add_argument("--num-records", type=int, required=True, metavar="N", help="number of records")
    payload = parser.add_mutually_exclusive_group(required=True)
    payload.add_argument("--record-size", type=int, metavar="BYTES", help="send random values of this size")
    payload.add_argument("--payload-file", metavar="FILE", help="send random lines of this file")
    payload.add_argument("--payload-monotonic", action="store_true", help="send the values 0, 1, 2...")
    parser.add_argument(
        "--throughput", type=float, default=-1, metavar="N", help="records per second at most (default: no limit)"
    )
    parser.add_argument(
        "--producer-props", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help="producer configurations"
    )
    parser.add_argument("--print-metrics", action="store_true", help="print the producer's metrics at the end")
    parser.add_argument("--transactional-id", default="performance-producer-default-transactional-id", metavar="ID")
    parser.add_argument(
        "--transaction-duration-ms", type=int, default=0, metavar="MS", help="use transactions of this duration"
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw throughput and latency over time")
    parser.add_argument("--latencies", metavar="FILE", help="write the latency of each record (ms), one on each line")
    parser.set_defaults(run=run_producer)


def _add_consumer(directions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = directions.add_parser("consumer", help="measure consuming, as kafka-consumer-perf-test does")
    add_connection_options(parser, "--consumer.config", "--command-config")
    parser.add_argument("--topic", required=True, help="topic to read")
    parser.add_argument("--messages", type=int, required=True, metavar="N", help="number of records")
    parser.add_argument("--group", help="consumer group (default: a new one)")
    parser.add_argument(
        "--timeout", type=int, default=10_000, metavar="MS", help="stop when no record has come for this time"
    )
    parser.add_argument(
        "--reporting-interval", type=int, default=5_000, metavar="MS", help="interval of --show-detailed-stats"
    )
    parser.add_argument("--show-detailed-stats", action="store_true", help="print a line for each interval")
    parser.add_argument("--hide-header", action="store_true", help="do not print the names of the columns")
    parser.add_argument("--from-latest", action="store_true", help="start with new records only")
    parser.add_argument("--print-metrics", action="store_true", help="print the consumer's metrics at the end")
    parser.set_defaults(run=run_consumer)
