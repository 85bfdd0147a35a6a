"""`gregor log verify`: check the files of a log, and list the repairs that a start would make."""

from __future__ import annotations

import argparse
import os

from ..storage.disk.read_only_files import ReadOnlyFiles
from ..storage.recovery.directory_verification import find_partitions, total_bytes, verify_log_directory
from ..storage.recovery.verification import Finding
from .asking import UsageError, counted, run_tool, say
from .progress import ProgressBar

DAMAGED = 1


EXAMPLES = """\
examples:
  gregor log verify gregor-data
  gregor log verify gregor-data/orders-0
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "log",
        help="check the files of logs",
        epilog=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser(
        "verify",
        help="check CRCs, offsets, indexes and checkpoints, without changing anything",
        description="Check CRCs, offsets, indexes and checkpoints, and print how a broker would treat each fault at\n"
        "its start. Nothing is changed or locked, so a broker may be running. The exit status is 1 if anything\n"
        "is wrong.",
    )
    verify.add_argument("directories", nargs="+", metavar="DIR", help="log directory, or directory of a partition")
    verify.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Verify each directory; the exit code is 1 if one is unreadable or has a fault."""
    problems = 0

    def work() -> None:
        nonlocal problems
        for directory in arguments.directories:
            try:
                problems += _verify(directory.rstrip("/") or "/")
            except OSError as error:
                if isinstance(error, BrokenPipeError):
                    raise
                raise UsageError(f"{error.filename or directory}: {error.strerror}") from error

    return run_tool(work) or (DAMAGED if problems else 0)


def _verify(directory: str) -> int:
    """Verify one directory and print the findings; return their number. Raises OSError."""
    files = ReadOnlyFiles()
    checked = find_partitions(files, directory)
    if not checked.partitions:
        raise UsageError(f"{directory}: neither the directory of a partition nor one with partitions in it")
    if checked.is_live:
        say(f"{checked.log_directory} is in use by a broker: files that are being written or removed are not checked")
    size_bytes = total_bytes(files, checked)
    done_bytes = problems = 0
    with ProgressBar(size_bytes, "bytes") as progress:

        def advance(checked_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += checked_bytes
            progress.advance(done_bytes)

        for finding in verify_log_directory(files, checked, advance):
            problems += 1
            progress.say(describe(finding))
    partitions = counted(len(checked.partitions), "partition")
    found = "no problem found" if not problems else counted(problems, "problem")
    say(f"{directory}: {partitions}, {size_bytes:,} bytes checked: {found}")
    return problems


def describe(finding: Finding) -> str:
    """Return a finding as one line: the place, the fault, and the repair at a start."""
    place = "" if finding.position is None else f" at position {finding.position}"
    return f"{os.path.normpath(finding.path)}{place}: {finding.problem}; at the next start: {finding.remedy}"
