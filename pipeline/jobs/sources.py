"""Where a job's records come from: log directories or brokers, by the same options, read in tasks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """From where, and which topics."""
    source = parser.add_argument_group("source")
    source.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="read through these brokers")
    source.add_argument("--log-dir", action="append", metavar="DIR", help="or read this log directory (repeatable)")
    source.add_argument("--topics", metavar="NAME,...", help="which topics; log directories take globs (default: all)")
    source.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the formats kafka_raw or kafka_log, such as startingTimestamp=1700000000000 (repeatable)",
    )


def source_options(options: argparse.Namespace, **settings: str) -> tuple[str, dict[str, str]]:
    """The format's name and its options as the arguments say, `settings` among them. Raises OptionError."""
    if bool(options.log_dir) == bool(options.bootstrap_server):
        raise OptionError("say where to read: --log-dir or --bootstrap-server")
    chosen = dict(settings)
    for assignment in options.option:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise OptionError(f"--option takes NAME=VALUE, not {assignment!r}")
        chosen[name] = value
    if options.log_dir:
        chosen["path"] = ",".join(options.log_dir)
        if options.topics:
            chosen["topic"] = options.topics
        return "kafka_log", chosen
    chosen["kafka.bootstrap.servers"] = options.bootstrap_server
    if options.topics:
        chosen["subscribe"] = options.topics
    else:
        chosen["subscribePattern"] = "(?!__).*"
    return "kafka_raw", chosen


def open_reader(options: argparse.Namespace, **settings: str) -> DataSourceReader:
    """The reader itself, for work in tasks that needs no table. Raises OptionError."""
    name, chosen = source_options(options, **settings)
    if name == "kafka_log":
        from ..kafka_log import KafkaLogSource

        return KafkaLogSource(chosen).reader(None)
    from ..kafka_raw import KafkaRawSource

    return KafkaRawSource(chosen).reader(None)
