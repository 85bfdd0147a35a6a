"""`gregor metadata recover`: restores the metadata of a controller from the copy of a broker."""

from __future__ import annotations

import argparse

from ..broker.metadata.recovery import Recovery, recover
from ..protocol.errors import BrokerError
from ..storage.disk.checkpoints import MalformedCheckpointError
from ..storage.disk.log_directory import StorageUnavailableError
from .asking import UsageError, run_tool, say

EXAMPLES = """\
examples:
  gregor metadata recover --from /data/broker-1 --from /data/broker-2 --to /data/controller
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "metadata",
        help="restore the metadata of a controller",
        epilog=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    recovery = actions.add_parser(
        "recover",
        help="replace the controller's metadata log with a broker's copy",
        description="Replace the metadata log of a controller that has lost it, or has an older one, with the longest\n"
        "of the brokers' copies. The controller must not be running; the brokers may. The log that the controller had\n"
        "is kept beside it, as __cluster_metadata-0.*-stray.",
    )
    recovery.add_argument(
        "--from",
        dest="sources",
        action="append",
        required=True,
        metavar="DIR",
        help="log directory of a broker, or a copy of the directory; repeatable: name those of all remaining brokers",
    )
    recovery.add_argument("--to", dest="target", required=True, metavar="DIR", help="the controller's log directory")
    recovery.add_argument("--node-id", type=int, metavar="ID", help="the controller's node.id, for a new directory")
    recovery.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Recover the metadata and print the result; the exit code is 1, with one line, on failure."""

    def work() -> None:
        try:
            done = recover(arguments.target, arguments.sources, node_id=arguments.node_id)
        except BrokerError as error:
            raise UsageError(error.message or error.code.name) from error
        except (StorageUnavailableError, MalformedCheckpointError) as error:
            raise UsageError(str(error)) from error
        except OSError as error:
            raise UsageError(f"{error.filename or arguments.target}: {error.strerror}") from error
        _tell(arguments.target, done)

    return run_tool(work)


def _tell(target: str, done: Recovery) -> None:
    for copy in done.copies:
        say(f"{copy.source}: up to offset {copy.end_offset} in epoch {copy.epoch}, {copy.topic_count} topics")
    say(f"{target} has the metadata of {done.copies[0].source} now: start the controller")
    if done.former is not None:
        say(f"the log that it had before is kept as {done.former}")
