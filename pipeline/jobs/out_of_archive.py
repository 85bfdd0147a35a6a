"""The common part of the jobs that write an archive to topics: the partitions, the brokers and their topics."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..filesystems.locations import location_argument
from ..kafka.wire import WireSettings
from .cluster_options import add_config_argument, cluster_settings

if TYPE_CHECKING:
    from ..archive.manifest import Manifest
    from ..archive.reading import ArchivedPartition


def add_target_arguments(parser: argparse.ArgumentParser, brokers: str) -> None:
    """Add the arguments for the archive and the target; `brokers` is the help text of the target."""
    parser.add_argument("--archive", type=location_argument, required=True, metavar="DIR", help="the archive's root")
    parser.add_argument("--topics", metavar="NAME,...", help="only these topics (default: all)")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT,...", help=brokers)
    add_config_argument(parser)
    parser.add_argument("--prefix", default="", help="prefix of the names of topics at the target")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a configuration of created topics (default: retention.ms=-1)",
    )


def target_settings(options: argparse.Namespace) -> WireSettings:
    """Return the connection settings of the target brokers. Raises OptionError."""
    return cluster_settings(options.bootstrap_server, options.command_config)


def make_target_topics(
    options: argparse.Namespace, manifest: Manifest, partitions: Sequence[ArchivedPartition]
) -> None:
    """Create the missing topics with their archived partition counts. Raises PipelineError."""
    from ..kafka.topic_making import make_topics

    counts = manifest.state.partition_counts
    wanted = {options.prefix + each.topic: counts.get(each.topic, 1) for each in partitions}
    make_topics(target_settings(options), wanted, options.config)
