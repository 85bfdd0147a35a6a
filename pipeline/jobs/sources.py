"""The source of a job's records: log directories or brokers, with the same options, read in tasks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import OptionError
from ..local_paths import directory_argument
from .cluster_options import add_config_argument, cluster_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the source and its topics."""
    source = parser.add_argument_group("source")
    source.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="read through these brokers")
    add_config_argument(source)
    source.add_argument(
        "--log-dir",
        action="append",
        type=directory_argument,
        metavar="DIR",
        help="read this log directory instead (repeatable)",
    )
    source.add_argument("--topics", metavar="NAME,...", help="topics to read; globs for log directories (default: all)")
    _add_option_argument(source, "kafka_raw or kafka_log")


def add_broker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for brokers and topics, for jobs that need a broker."""
    source = parser.add_argument_group("source")
    source.add_argument("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="read through these brokers")
    add_config_argument(source)
    source.add_argument("--topics", metavar="NAME,...", help="topics to read (default: all)")
    _add_option_argument(source, "kafka_raw")


def source_options(options: argparse.Namespace, **settings: str) -> tuple[str, dict[str, str]]:
    """Return the format's name and its options for the arguments, with `settings`. Raises OptionError."""
    if bool(options.log_dir) == bool(options.bootstrap_server):
        raise OptionError("say where to read: --log-dir or --bootstrap-server")
    if not options.log_dir:
        return "kafka_raw", broker_options(options, **settings)
    chosen = settings | _assigned(options)
    chosen["path"] = ",".join(options.log_dir)
    if options.topics:
        chosen["topic"] = options.topics
    return "kafka_log", chosen


def broker_options(options: argparse.Namespace, **settings: str) -> dict[str, str]:
    """Return the options of kafka_raw for the arguments, with `settings`. Raises OptionError."""
    chosen = cluster_options(options.bootstrap_server, options.command_config) | settings | _assigned(options)
    chosen["kafka.bootstrap.servers"] = options.bootstrap_server
    if options.topics:
        chosen["subscribe"] = options.topics
    else:
        chosen["subscribePattern"] = "^(?!__)"
    return chosen


def open_reader(options: argparse.Namespace, **settings: str) -> DataSourceReader:
    """Return the reader, for work in tasks that needs no table. Raises OptionError."""
    name, chosen = source_options(options, **settings)
    if name == "kafka_log":
        from ..logs.kafka_log import KafkaLogSource

        return KafkaLogSource(chosen).reader(None)
    from ..kafka.kafka_raw import KafkaRawSource

    return KafkaRawSource(chosen).reader(None)


def add_data_loss_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that sets `failOnDataLoss`, for jobs without --option."""
    parser.add_argument(
        "--fail-on-data-loss",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="stop with an error if records were removed before they were read (default), or continue after them",
    )


def _add_option_argument(group: argparse._ArgumentGroup, formats: str) -> None:
    group.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"an option of {formats}, such as startingTimestamp=1700000000000 (repeatable)",
    )


def _assigned(options: argparse.Namespace) -> dict[str, str]:
    chosen = {}
    for assignment in options.option:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, not {assignment!r}")
        chosen[name] = value
    return chosen
