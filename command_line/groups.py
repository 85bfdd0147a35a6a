"""`gregor groups`: list, describe, delete groups and move their offsets, with the options of kafka-consumer-groups."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from ..client.admin import Admin, GroupMember, GroupOverview
from ..client.wire.offset_lookup import LATEST
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.topic_partition import AnyTopicPartition
from .asking import (
    UsageError,
    add_actions,
    add_connection_options,
    add_json_option,
    client_properties,
    run_client,
    say,
    say_json,
)
from .offset_reset import RESET_COLUMNS, add_reset_options, parse_partitions, reset_offsets
from .reaching import SECONDS_OF_PATIENCE
from .text_table import as_objects, format_table

DEAD = "Dead"
EMPTY = "Empty"
OFFSET_COLUMNS = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)


EXAMPLES = """\
examples:
  gregor groups --list --state
  gregor groups --describe --group billing
  gregor groups --describe --all-groups --members --verbose
  gregor groups --reset-offsets --group billing --topic orders --to-datetime 2026-01-31T12:00:00.000 --execute
  gregor groups --delete --group billing
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "groups",
        help="list and describe consumer groups, delete them, reset offsets",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    add_actions(
        parser,
        {
            "list": "list the groups",
            "describe": "show committed offsets and lag of groups",
            "delete": "delete groups without members",
            "reset-offsets": "change the offsets of a group without members",
            "delete-offsets": "delete a group's offsets of topics",
        },
    )
    parser.add_argument("--group", action="append", default=[], help="name of the group; repeatable")
    parser.add_argument("--all-groups", action="store_true", help="every group")
    parser.add_argument(
        "--topic", action="append", default=[], metavar="TOPIC[:0,1]", help="topics (and partitions); repeatable"
    )
    parser.add_argument("--all-topics", action="store_true", help="all topics for which the group has offsets")
    view = parser.add_mutually_exclusive_group()
    view.add_argument("--offsets", dest="view", action="store_const", const="offsets", help="describe offsets")
    view.add_argument("--members", dest="view", action="store_const", const="members", help="describe members")
    view.add_argument("--state", dest="view", action="store_const", const="state", help="describe or list states")
    parser.add_argument(
        "--verbose", action="store_true", help="with --members: also show the partitions of each member"
    )
    parser.add_argument("--timeout", type=int, default=5000, metavar="MS", help="how long to wait for the brokers")
    add_reset_options(parser)
    parser.set_defaults(run=run, view="offsets")


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the broker refused."""

    async def work() -> None:
        properties = {"default_api_timeout_ms": str(max(arguments.timeout, 1)), **client_properties(arguments)}
        async with Admin(arguments.bootstrap_server, **properties) as admin:
            await _ACTIONS[arguments.action](admin, arguments)

    return run_client(work, arguments.bootstrap_server, patience_s=min(SECONDS_OF_PATIENCE, arguments.timeout / 1000))


async def _chosen_groups(admin: Admin, arguments: argparse.Namespace) -> list[str]:
    if arguments.all_groups:
        return sorted(group.group_id for group in await admin.list_groups())
    if not arguments.group:
        raise UsageError(f"--{arguments.action} needs --group or --all-groups")
    return list(arguments.group)


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    groups = sorted(await admin.list_groups(), key=lambda group: group.group_id)
    if arguments.json:
        rows = [(group.group_id, group.group_state or None, group.group_type or None) for group in groups]
        say_json(as_objects(("GROUP", "STATE", "TYPE"), rows))
        return
    if arguments.view == "state":
        for line in format_table(("GROUP", "STATE"), [(g.group_id, g.group_state or None) for g in groups]):
            say(line)
        return
    for group in groups:
        say(group.group_id)


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    objects: list[dict[str, object]] = []
    for group_id in await _chosen_groups(admin, arguments):
        group = await admin.group_overview(group_id)
        if group.state == DEAD:
            raise UsageError(f"Consumer group '{group_id}' does not exist.")
        if arguments.json:
            objects.append(await _as_object(admin, group))
            continue
        say()
        if group.state == EMPTY and arguments.view != "state":
            say(f"Consumer group '{group_id}' has no active members.")
            say()
        if arguments.view == "state":
            _describe_state(group)
        elif arguments.view == "members":
            _describe_members(group, is_verbose=arguments.verbose)
        else:
            await _describe_offsets(admin, group)
    if arguments.json:
        say_json(objects)


async def _as_object(admin: Admin, group: GroupOverview) -> dict[str, object]:
    """Return all that is described about a group."""
    members = [
        {
            "consumer_id": member.member_id,
            "instance_id": member.instance_id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": [{"topic": topic, "partition": partition} for topic, partition in member.partitions],
        }
        for member in group.members
    ]
    return {
        "group": group.group_id,
        "state": group.state,
        "assignment_strategy": group.assignor or None,
        "members": members,
        "offsets": as_objects(OFFSET_COLUMNS, [[group.group_id, *line.row] for line in await _lags(admin, group)]),
    }


def _describe_state(group: GroupOverview) -> None:
    row = (group.group_id, group.assignor or None, group.state, len(group.members))
    for line in format_table(("GROUP", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"), [row]):
        say(line)


def _describe_members(group: GroupOverview, *, is_verbose: bool) -> None:
    head = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows: list[list[object]] = []
    for member in group.members:
        places = member.partitions
        row: list[object] = [group.group_id, member.member_id, member.host, member.client_id, len(places)]
        if is_verbose:
            row.append(", ".join(f"{topic}({partition})" for topic, partition in places) or None)
        rows.append(row)
    for line in format_table([*head, "ASSIGNMENT"] if is_verbose else head, rows):
        say(line)


@dataclass(slots=True)
class _Lag:
    """A line of the description: the committed offset, the log end, and the member that reads the partition."""

    place: AnyTopicPartition
    committed: int | None
    end: int | None
    member: GroupMember | None

    @property
    def row(self) -> list[object]:
        lag = self.end - self.committed if self.end is not None and self.committed is not None else None
        member = self.member
        who = (member.member_id, member.host, member.client_id) if member is not None else (None, None, None)
        return [*self.place, self.committed, self.end, lag, *who]


async def _lags(admin: Admin, group: GroupOverview) -> list[_Lag]:
    committed = await admin.group_offsets(group.group_id)
    readers = {place: member for member in group.members for place in member.partitions}
    places = sorted(committed.keys() | readers.keys())
    ends = await _end_offsets(admin, places)
    return [_Lag(place, committed.get(place), ends.get(place), readers.get(place)) for place in places]


async def _describe_offsets(admin: Admin, group: GroupOverview) -> None:
    lines = await _lags(admin, group)
    for text in format_table(OFFSET_COLUMNS, [[group.group_id, *line.row] for line in lines]):
        say(text)


async def _end_offsets(admin: Admin, places: list[AnyTopicPartition]) -> dict[AnyTopicPartition, int]:
    """Return the log ends of the partitions that still exist."""
    existing = set(await admin.list_topics(include_internal=True))
    found = await admin.list_offsets({place: LATEST for place in places if place[0] in existing})
    return {place: entry.offset for place, entry in found.items() if entry is not None}


async def _delete(admin: Admin, arguments: argparse.Namespace) -> None:
    deleted = []
    for group_id in await _chosen_groups(admin, arguments):
        try:
            await admin.delete_groups([group_id])
        except BrokerError as error:
            raise BrokerError(error.code, f"Group '{group_id}' could not be deleted") from error
        deleted.append(group_id)
    if arguments.json:
        say_json({"deleted": deleted})
        return
    names = ", ".join(f"'{name}'" for name in deleted)
    say(f"Deletion of requested consumer groups ({names}) was successful.")


async def _delete_offsets(admin: Admin, arguments: argparse.Namespace) -> None:
    if len(arguments.group) != 1 or not arguments.topic:
        raise UsageError("--delete-offsets needs one --group, and --topic")
    places = await parse_partitions(admin, arguments.topic)
    await admin.delete_group_offsets(arguments.group[0], places)
    rows = [(*place, "Successful") for place in places]
    if arguments.json:
        say_json(as_objects(("TOPIC", "PARTITION", "STATUS"), rows))
        return
    for line in format_table(("TOPIC", "PARTITION", "STATUS"), rows):
        say(line)


async def _reset(admin: Admin, arguments: argparse.Namespace) -> None:
    rows: list[tuple[object, ...]] = []
    for group_id in await _chosen_groups(admin, arguments):
        group = await admin.group_overview(group_id)
        if group.state not in (DEAD, EMPTY):
            raise BrokerError(
                ErrorCode.NON_EMPTY_GROUP,
                f"Assignments can only be reset if the group '{group_id}' is inactive, but it is {group.state}",
            )
        rows += await reset_offsets(admin, group_id, arguments)
    if arguments.json:
        say_json(as_objects(RESET_COLUMNS, rows))


_ACTIONS = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "delete-offsets": _delete_offsets,
    "reset-offsets": _reset,
}
