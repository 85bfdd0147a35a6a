"""`gregor storage`: format log directories before the first start, with the options of Kafka's ``kafka-storage``."""

from __future__ import annotations

import argparse
import base64
import sys
import uuid
from pathlib import Path

from .asking import UsageError, run_tool, say

EXAMPLES = """\
A broker formats its empty log directories by itself: formatting is for a cluster id of your own, and for SCRAM users
who may log in from the first start on. Everybody on the machine sees the options of running programs: change such
passwords later.

examples:
  gregor storage random-uuid
  gregor storage format -c server.properties -t 5L6g3nShT-eMCtK--X86sw -S 'SCRAM-SHA-512=[name=admin,password=secret]'
  gregor storage info --config server.properties
"""
NOT_FORMATTED = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "storage",
        help="format log directories before the first start (kafka-storage)",
        epilog=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    format_ = actions.add_parser("format", help="format the log directories of a configuration")
    info = actions.add_parser("info", help="print the log directories of a configuration, and their cluster")
    for action in (format_, info):
        action.add_argument("--config", "-c", required=True, type=Path, metavar="FILE", help="the server.properties")
    format_.add_argument("--cluster-id", "-t", required=True, metavar="ID", help="id of the cluster")
    format_.add_argument(
        "--add-scram",
        "-S",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a user, as SCRAM-SHA-256=[name=alice,password=alice-secret] or SCRAM-SHA-512=[name=alice,iterations=8192,"
        'salt="N3E=",saltedpassword="YCE="] (repeatable)',
    )
    format_.add_argument(
        "--ignore-formatted", "-g", action="store_true", help="leave formatted directories as they are"
    )
    format_.add_argument(
        "--feature", "-f", action="append", default=[], metavar="NAME=LEVEL", help="level of a feature (repeatable)"
    )
    format_.add_argument("--release-version", "-r", metavar="VERSION", help="without effect: a new cluster has 3.9-IV0")
    quorum = format_.add_mutually_exclusive_group()
    quorum.add_argument("--standalone", "-s", action="store_true", help="without effect: there is one controller")
    quorum.add_argument("--no-initial-controllers", "-N", action="store_true", help="without effect, as --standalone")
    quorum.add_argument("--initial-controllers", "-I", metavar="LIST", help="without effect, as --standalone")
    actions.add_parser("random-uuid", help="print a new cluster id")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do the action; return the exit status."""
    status = 0

    def work() -> None:
        nonlocal status
        if options.action == "random-uuid":
            say(random_uuid())
        elif options.action == "info":
            status = _describe(options)
        else:
            _format(options)

    return run_tool(work) or status


def random_uuid() -> str:
    """Return a new id. As in Kafka it never begins with a dash, which would make it an option of a command."""
    ids = iter(lambda: base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="), "")
    return next(name for name in ids if not name.startswith("-"))


def _format(options: argparse.Namespace) -> None:
    from ..broker.app.formatting import AlreadyFormattedError, format_directories
    from ..broker.config import BrokerConfig, ConfigError
    from ..broker.metadata.features import METADATA_VERSION
    from ..broker.metadata.scram_arguments import ScramArgumentError, parse_scram_argument
    from ..storage.disk.log_directory import StorageUnavailableError

    if not options.cluster_id.strip():
        raise UsageError("You must specify the cluster id.")
    try:
        config = BrokerConfig.load(options.config)
        users = [parse_scram_argument(text) for text in options.add_scram]
        features = dict(map(_feature, options.feature))
        if METADATA_VERSION in features and options.release_version:
            raise UsageError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
        formatted = format_directories(
            config, options.cluster_id, users=users, features=features, ignores_formatted=options.ignore_formatted
        )
    except (ConfigError, ScramArgumentError, AlreadyFormattedError, StorageUnavailableError) as error:
        raise UsageError(str(error)) from None
    if not formatted:
        say("All of the log directories are already formatted.")
    for directory in formatted:
        say(f"Formatting metadata directory {directory} with metadata.version 3.9-IV0.")
    if users and config.roles.controller is not None:
        print(  # noqa: T201
            "--add-scram: without effect on this node, which takes the users of its controller", file=sys.stderr
        )


def _feature(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals or not (level.isascii() and level.isdecimal() and len(level) < 6):
        raise UsageError(f"Can't parse feature=level string {text}: use NAME=LEVEL")
    return name, int(level)


def _describe(options: argparse.Namespace) -> int:
    """Print the directories; return whether one of them is not formatted, as an exit status."""
    from ..broker.app.formatting import is_formatted, meta_properties
    from ..broker.config import BrokerConfig, ConfigError

    try:
        config = BrokerConfig.load(options.config)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    found = [path for path in config.log_dirs if Path(path).is_dir()]
    problems = [f"{path} is not formatted." for path in config.log_dirs if not is_formatted(path)]
    _list("Found log directory:", "Found log directories:", found)
    for path in config.log_dirs:
        if is_formatted(path):
            shown = ", ".join(f"{name}={value}" for name, value in meta_properties(path).items())
            say(f"Found metadata: {{{shown}}}")
            say()
            break
    _list("Found problem:", "Found problems:", problems)
    return NOT_FORMATTED if problems else 0


def _list(title_of_one: str, title: str, lines: list[str]) -> None:
    if lines:
        say(title_of_one if len(lines) == 1 else title)
        for line in lines:
            say(f"  {line}")
        say()
