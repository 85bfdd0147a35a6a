"""The options of the commands that serve, broker or gateway, for their configuration."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_configuration_options(parser: argparse.ArgumentParser, file_name: str) -> None:
    """Add the properties file, shown as ``file_name``, and `--override`."""
    parser.add_argument(
        "properties",
        nargs="?",
        type=Path,
        metavar=file_name,
        help="file of configurations, one key=value on each line",
    )
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a configuration that takes precedence over the file; repeatable",
    )
