"""`gregor reassign`: move replicas to other brokers, with the options of kafka-reassign-partitions."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..client.admin import Admin
from ..client.wire.cluster import TopicMetadata
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
from .move_throttles import clear_throttles, moves_of, throttle
from .named_brokers import check_brokers

EXAMPLES = """\
examples:
  gregor reassign --generate --topics-to-move-json-file topics.json --broker-list 1,2,3
  gregor reassign --execute --reassignment-json-file plan.json --throttle 10000000
  gregor reassign --verify --reassignment-json-file plan.json
  gregor reassign --list
  gregor reassign --cancel --reassignment-json-file plan.json

topics.json: {"version": 1, "topics": [{"topic": "orders"}]}
plan.json:   {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3]}]}
"""
Plan = dict[AnyTopicPartition, list[int]]
NEEDED = {
    "execute": "reassignment_json_file",
    "verify": "reassignment_json_file",
    "cancel": "reassignment_json_file",
    "generate": "topics_to_move_json_file",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "reassign",
        help="move replicas of partitions to other brokers",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    add_json_option(parser)
    add_actions(
        parser,
        {
            "generate": "print a plan that spreads topics over brokers",
            "execute": "begin the reassignments of a plan, and print the present assignment",
            "verify": "show which reassignments of a plan are complete",
            "list": "list the reassignments in progress",
            "cancel": "cancel the reassignments of a plan that are in progress",
        },
    )
    parser.add_argument("--reassignment-json-file", type=Path, metavar="FILE", help="the plan")
    parser.add_argument("--topics-to-move-json-file", type=Path, metavar="FILE", help="with --generate: the topics")
    parser.add_argument("--broker-list", metavar="ID,...", help="with --generate: the brokers")
    parser.add_argument(
        "--throttle", type=int, metavar="BYTES", help="with --execute: most bytes per second between brokers"
    )
    parser.add_argument(
        "--additional", action="store_true", help="with --execute: begin while other reassignments are in progress"
    )
    parser.add_argument("--preserve-throttles", action="store_true", help="with --verify, --cancel: leave throttles")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the cluster refused."""

    async def work() -> None:
        needed = NEEDED.get(arguments.action)
        if needed is not None and getattr(arguments, needed) is None:
            raise UsageError(f"--{arguments.action} needs --{needed.replace('_', '-')}")
        for option, users in (
            ("throttle", ("execute",)),
            ("additional", ("execute",)),
            ("preserve_throttles", ("verify", "cancel")),
        ):
            if getattr(arguments, option) not in (None, False) and arguments.action not in users:
                raise UsageError(f"--{option.replace('_', '-')} needs --{' or --'.join(users)}")
        if arguments.throttle is not None and arguments.throttle < 0:
            raise UsageError("--throttle: bytes per second are not negative")
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            await _ACTIONS[arguments.action](admin, arguments)

    return run_client(work, arguments.bootstrap_server)


async def _generate(admin: Admin, arguments: argparse.Namespace) -> None:
    brokers = _broker_ids(arguments.broker_list)
    await check_brokers(admin, "--broker-list", brokers)
    names = [_field(entry, "topic", str) for entry in _entries(arguments.topics_to_move_json_file, "topics")]
    described = await admin.describe_topics(names)
    proposed: Plan = {}
    for topic in described:
        proposed |= spread(topic, brokers)
    current = _assignment(described)
    if arguments.json:
        say_json({"current": _as_plan(current), "proposed": _as_plan(proposed)})
        return
    say(f"Current partition replica assignment\n{json.dumps(_as_plan(current))}\n")
    say(f"Proposed partition reassignment configuration\n{json.dumps(_as_plan(proposed))}")


def spread(topic: TopicMetadata, brokers: Sequence[int]) -> Plan:
    """Return replicas on these brokers in turn, as many for each partition as it has. Raises UsageError."""
    plan: Plan = {}
    for partition in topic.partitions:
        count = len(partition.replicas)
        if count > len(brokers):
            raise UsageError(f"{topic.name} has {count} replicas, and --broker-list has {len(brokers)} brokers")
        # Each round over the brokers shifts the followers, so that one broker's followers are on different ones.
        turn, shift = partition.index % len(brokers), partition.index // len(brokers)
        others = [*brokers[turn + 1 :], *brokers[:turn]]
        start = shift % len(others) if others else 0
        plan[topic.name, partition.index] = [brokers[turn], *(others[start:] + others[:start])[: count - 1]]
    return plan


async def _execute(admin: Admin, arguments: argparse.Namespace) -> None:
    plan = _read_plan(arguments.reassignment_json_file)
    described = await admin.describe_topics(sorted({topic for topic, _ in plan}))
    before = {place: replicas for place, replicas in _assignment(described).items() if place in plan}
    missing = sorted(plan.keys() - before.keys())
    if missing:
        raise UsageError(f"there is no partition {missing[0][0]}-{missing[0][1]}")
    await check_brokers(
        admin, str(arguments.reassignment_json_file), (broker for replicas in plan.values() for broker in replicas)
    )
    ongoing = await admin.list_partition_reassignments()
    if ongoing and not arguments.additional:
        raise UsageError(
            "Cannot execute because there is an existing partition assignment. Use --additional to override this and "
            "create a new partition assignment in addition to the existing one. The --additional flag can also be used "
            "to change the throttle by resubmitting the current reassignment."
        )
    if arguments.throttle is not None:
        await throttle(admin, moves_of(plan, before, ongoing), arguments.throttle)
    await admin.alter_partition_reassignments(plan)
    if arguments.json:
        say_json({"before": _as_plan(before), "started": [_place(place) for place in sorted(plan)]})
        return
    say(f"Current partition replica assignment\n\n{json.dumps(_as_plan(before))}\n")
    say("Save this to use as the --reassignment-json-file option during rollback")
    if arguments.throttle is not None:
        say(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is "
            f"removed.\nThe inter-broker throttle limit was set to {arguments.throttle} B/s"
        )
    say(f"Successfully started partition reassignments for {', '.join(_place(place) for place in sorted(plan))}")


async def _verify(admin: Admin, arguments: argparse.Namespace) -> None:
    plan = _read_plan(arguments.reassignment_json_file)
    moving = await admin.list_partition_reassignments(plan)
    now = _assignment(await admin.describe_topics(sorted({topic for topic, _ in plan})))
    states = {place: _state(place, plan, now, is_moving=place in moving) for place in sorted(plan)}
    cleared = "" if moving else await _clear(admin, arguments, plan)
    if arguments.json:
        say_json([{"topic": place[0], "partition": place[1], "state": state} for place, state in states.items()])
        return
    say("Status of partition reassignment:")
    sentences = {
        "complete": "is completed.",
        "in progress": "is still in progress.",
        "other replicas": "is not in progress, and the partition has other replicas than the plan.",
    }
    for place, state in states.items():
        say(f"Reassignment of partition {_place(place)} {sentences[state]}")
    if cleared:
        say(f"\n{cleared}")


async def _clear(admin: Admin, arguments: argparse.Namespace, plan: Plan) -> str:
    """Remove the throttles of a reassignment, unless they are to stay; return what was done, in Kafka's words."""
    if arguments.preserve_throttles:
        return ""
    brokers, topics = sorted((await admin.describe_cluster()).brokers), sorted({topic for topic, _ in plan})
    await clear_throttles(admin, brokers, topics)
    return (
        f"Clearing broker-level throttles on broker{'s' * (len(brokers) != 1)} {_joined(brokers)}\n"
        f"Clearing topic-level throttles on topic{'s' * (len(topics) != 1)} {','.join(topics)}"
    )


def _state(place: AnyTopicPartition, plan: Plan, now: Plan, *, is_moving: bool) -> str:
    if is_moving:
        return "in progress"
    return "complete" if now.get(place) == plan[place] else "other replicas"


async def _list(admin: Admin, arguments: argparse.Namespace) -> None:
    moving = sorted((await admin.list_partition_reassignments()).items())
    if arguments.json:
        say_json(
            [
                {
                    "topic": topic,
                    "partition": index,
                    "replicas": found.replicas,
                    "adding": found.adding_replicas,
                    "removing": found.removing_replicas,
                }
                for (topic, index), found in moving
            ]
        )
        return
    if not moving:
        say("No partition reassignments found.")
        return
    say("Current partition reassignments:")
    for place, found in moving:
        adding = f" adding: {_joined(found.adding_replicas)}." if found.adding_replicas else ""
        removing = f" removing: {_joined(found.removing_replicas)}." if found.removing_replicas else ""
        say(f"{_place(place)}: replicas: {_joined(found.replicas)}.{adding}{removing}")


async def _cancel(admin: Admin, arguments: argparse.Namespace) -> None:
    plan = _read_plan(arguments.reassignment_json_file)
    moving = sorted((await admin.list_partition_reassignments(plan)).keys())
    if moving:
        await admin.alter_partition_reassignments(dict.fromkeys(moving))
    cleared = await _clear(admin, arguments, plan)
    if arguments.json:
        say_json({"cancelled": [_place(place) for place in moving]})
        return
    if moving:
        say(f"Successfully cancelled partition reassignments for: {', '.join(map(_place, moving))}")
    else:
        say("None of the specified partition moves are active.")
    if cleared:
        say(cleared)


def _read_plan(path: Path) -> Plan:
    """Return the plan of a file. Raises UsageError."""
    plan: Plan = {}
    for entry in _entries(path, "partitions"):
        place = (_field(entry, "topic", str), _field(entry, "partition", int))
        if place in plan:
            raise UsageError(f"{path}: {_place(place)} is named twice")
        plan[place] = _field(entry, "replicas", list)
        if not plan[place] or not all(type(replica) is int for replica in plan[place]):
            raise UsageError(f"{path}: the replicas of {_place(place)} are not a list of broker ids")
    if not plan:
        raise UsageError(f"{path}: no partition is named")
    return plan


def _entries(path: Path, name: str) -> list[dict[str, Any]]:
    """Return the objects under a name in a file of JSON. Raises UsageError."""
    try:
        content = json.loads(path.read_text())
        entries = content[name]
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f'{path} is not of the form {{"version": 1, "{name}": [...]}}: {error}') from error
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{path}: {name} is not a list of objects")
    return entries


def _field(entry: dict[str, Any], name: str, kind: type) -> Any:
    """Return a field of an entry. Raises UsageError for a missing one or another type."""
    value = entry.get(name)
    if type(value) is not kind:
        raise UsageError(f"the field {name} of {json.dumps(entry)[:100]} is missing or of another type")
    return value


def _broker_ids(text: str | None) -> list[int]:
    pieces = (text or "").split(",")
    if not all(piece.strip().isdecimal() for piece in pieces):
        raise UsageError("--generate needs --broker-list, as 1,2,3")
    return [int(piece) for piece in pieces]


def _assignment(topics: Sequence[TopicMetadata]) -> Plan:
    return {(topic.name, state.index): list(state.replicas) for topic in topics for state in topic.partitions}


def _as_plan(plan: Plan) -> dict[str, object]:
    partitions = [
        {"topic": topic, "partition": index, "replicas": replicas, "log_dirs": ["any"] * len(replicas)}
        for (topic, index), replicas in sorted(plan.items())
    ]
    return {"version": 1, "partitions": partitions}


def _place(place: AnyTopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def _joined(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes))


_ACTIONS = {"generate": _generate, "execute": _execute, "verify": _verify, "list": _list, "cancel": _cancel}
