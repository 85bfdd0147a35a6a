"""The part of `gregor groups` that computes the new offsets of a group."""

from __future__ import annotations

import argparse
import csv
import re
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ..client.admin import Admin
from ..client.wire.offset_lookup import EARLIEST, LATEST
from ..protocol.topic_partition import AnyTopicPartition
from .asking import UsageError, say
from .text_table import format_table

RESET_COLUMNS = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def add_reset_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of --reset-offsets: the new position, and --execute."""
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to-earliest", action="store_true", help="set offsets to the first record")
    target.add_argument("--to-latest", action="store_true", help="set offsets to the log's end")
    target.add_argument("--to-current", action="store_true", help="set offsets to the committed ones")
    target.add_argument("--to-offset", type=int, metavar="N", help="set offsets to N")
    target.add_argument("--shift-by", type=int, metavar="N", help="move offsets by N, backwards if N is negative")
    target.add_argument(
        "--to-datetime",
        metavar="YYYY-MM-DDTHH:MM:SS.sss",
        help="set offsets to the first record at or after this time (UTC)",
    )
    target.add_argument(
        "--by-duration", metavar="PnDTnHnMnS", help="set offsets to the first record within this time before now"
    )
    target.add_argument("--from-file", metavar="FILE", help="set offsets to those in a CSV file written with --export")
    parser.add_argument(
        "--execute", action="store_true", help="change the offsets; otherwise only show the new offsets"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")
    parser.add_argument("--export", action="store_true", help="print the new offsets as CSV")


async def reset_offsets(admin: Admin, group_id: str, arguments: argparse.Namespace) -> list[tuple[object, ...]]:
    """Return the new offsets of one group as rows, commit them with --execute, and print them unless --json is given.

    Raises UsageError.
    """
    targets = await _targets(admin, group_id, arguments)
    if arguments.execute and not arguments.dry_run:
        await admin.alter_group_offsets(group_id, targets)
    rows: list[tuple[object, ...]] = [(group_id, *place, offset) for place, offset in sorted(targets.items())]
    if arguments.json:
        return rows
    if arguments.export:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows((*place, offset) for place, offset in sorted(targets.items()))
        return rows
    say()
    for line in format_table(RESET_COLUMNS, rows):
        say(line)
    return rows


async def _targets(admin: Admin, group_id: str, arguments: argparse.Namespace) -> dict[AnyTopicPartition, int]:
    if arguments.from_file is not None:
        return await admin.within_log(_read_plan(arguments.from_file))
    places = await _chosen_places(admin, group_id, arguments)
    if arguments.to_earliest:
        return await admin.offsets_since(places, EARLIEST)
    if arguments.to_latest:
        return await admin.offsets_since(places, LATEST)
    if arguments.to_datetime is not None:
        return await admin.offsets_since(places, parse_datetime_ms(arguments.to_datetime))
    if arguments.by_duration is not None:
        since_ms = time.time() * 1000 - parse_duration(arguments.by_duration).total_seconds() * 1000
        return await admin.offsets_since(places, max(0, int(since_ms)))
    if arguments.to_offset is not None:
        return await admin.within_log(dict.fromkeys(places, arguments.to_offset))
    current = await admin.group_offsets(group_id, places)
    if arguments.shift_by is not None:
        missing = [place for place in places if place not in current]
        if missing:
            raise UsageError(f"--shift-by: the group has no offset of {missing[0][0]}-{missing[0][1]}")
        return await admin.within_log({place: current[place] + arguments.shift_by for place in places})
    if arguments.to_current:
        ends = await admin.offsets_since(places, LATEST)
        return {place: current.get(place, ends[place]) for place in places}
    raise UsageError("--reset-offsets needs a target: --to-earliest, --to-latest, --to-offset ...")


async def _chosen_places(admin: Admin, group_id: str, arguments: argparse.Namespace) -> list[AnyTopicPartition]:
    if arguments.all_topics:
        topics = sorted({topic for topic, _ in await admin.group_offsets(group_id)})
        return await parse_partitions(admin, topics)
    if not arguments.topic:
        raise UsageError("--reset-offsets needs --topic or --all-topics")
    return await parse_partitions(admin, arguments.topic)


async def parse_partitions(admin: Admin, texts: Iterable[str]) -> list[AnyTopicPartition]:
    """Return the partitions in TOPIC or TOPIC:0,1. Raises UsageError, or BrokerError for unknown topics."""
    places: list[AnyTopicPartition] = []
    for text in texts:
        topic, _, numbers = text.partition(":")
        try:
            chosen = [int(number) for number in numbers.split(",")] if numbers else None
        except ValueError:
            raise UsageError(f"--topic must look like TOPIC or TOPIC:0,1, not {text!r}") from None
        described = (await admin.describe_topics([topic]))[0]
        missing = sorted(set(chosen or ()) - {partition.index for partition in described.partitions})
        if missing:
            raise UsageError(f"{topic} has no partition {missing[0]}: it has {len(described.partitions)}, from 0 on")
        places += [(topic, p.index) for p in described.partitions if chosen is None or p.index in chosen]
    return places


def _read_plan(path: str) -> dict[AnyTopicPartition, int]:
    try:
        with Path(path).open(newline="") as file:
            return {(topic, int(partition)): int(offset) for topic, partition, offset in csv.reader(file)}
    except (OSError, ValueError) as error:
        raise UsageError(f"--from-file {path}: expected lines of topic,partition,offset ({error})") from error


def parse_datetime_ms(text: str) -> int:
    """Parse a time like 2026-11-21T05:24:23.786, in UTC without a zone, to milliseconds since the epoch."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--to-datetime: {error}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_duration(text: str) -> timedelta:
    """Parse an ISO 8601 duration of days and less, like P1DT2H or PT30S. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise UsageError(f"--by-duration must look like PnDTnHnMnS, not {text!r}")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
