"""`gregor transactions`: list, describe and abort transactions, with the options of kafka-transactions."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

from ..client.admin import Admin
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.messages.describe_producers import ProducerState
from ..protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ..protocol.topic_partition import AnyTopicPartition
from .asking import UsageError, add_connection_options, add_json_option, client_properties, run_client, say, say_json
from .text_table import as_objects, format_table

EXAMPLES = """\
examples:
  gregor transactions list
  gregor transactions describe --transactional-id payments-1
  gregor transactions describe-producers --topic orders --partition 0
  gregor transactions find-hanging --topic orders
  gregor transactions abort --topic orders --partition 0 --start-offset 1234
"""
ACTIONS = {
    "list": "list the transactional ids of all coordinators",
    "describe": "show the transaction of one transactional id",
    "describe-producers": "show the producers of a partition",
    "abort": "write an abort marker for a hanging transaction",
    "find-hanging": "list open transactions that no coordinator will end",
}
LIST_HEAD = ("TRANSACTIONALID", "COORDINATOR", "PRODUCERID", "TRANSACTIONSTATE")
PRODUCER_HEAD = (
    "PRODUCERID",
    "PRODUCEREPOCH",
    "LATESTCOORDINATOREPOCH",
    "LASTSEQUENCE",
    "LASTTIMESTAMP",
    "CURRENTTRANSACTIONSTARTOFFSET",
)
HANGING_HEAD = (
    "TOPIC",
    "PARTITION",
    "PRODUCERID",
    "PRODUCEREPOCH",
    "COORDINATOREPOCH",
    "STARTOFFSET",
    "LASTTIMESTAMP",
    "DURATION-MIN",
)
MINUTE_MS = 60_000
NOT_OPEN = -1
Row = tuple[object, ...]


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parser of this command."""
    parser = subparsers.add_parser(
        "transactions",
        help="list, describe and abort transactions",
        epilog=EXAMPLES,
    )
    add_connection_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="|".join(ACTIONS), required=True)
    added = {}
    for name, text in ACTIONS.items():
        action = added[name] = actions.add_parser(name, help=text, description=text)
        add_connection_options(action, is_repeated=True)
        if name != "abort":
            add_json_option(action)
    added["describe"].add_argument("--transactional-id", required=True, metavar="ID", help="the transactional id")
    for name in ("describe-producers", "abort", "find-hanging"):
        is_optional = name == "find-hanging"
        added[name].add_argument("--topic", required=not is_optional, help="the topic")
        added[name].add_argument("--partition", type=int, required=not is_optional, metavar="N", help="the partition")
    aborting = added["abort"]
    aborting.add_argument("--start-offset", type=int, metavar="N", help="first offset of the transaction")
    aborting.add_argument("--producer-id", type=int, metavar="ID", help="instead of --start-offset: its producer")
    aborting.add_argument("--producer-epoch", type=int, metavar="N", help="with --producer-id: the producer's epoch")
    aborting.add_argument("--coordinator-epoch", type=int, metavar="N", help="with --producer-id: of its coordinator")
    added["find-hanging"].add_argument(
        "--max-transaction-timeout",
        type=int,
        default=15,
        metavar="MIN",
        help="minutes for which a transaction may be open (default: 15)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; the exit code is 1 if the cluster refused."""

    async def work() -> None:
        async with Admin(arguments.bootstrap_server, **client_properties(arguments)) as admin:
            if arguments.action == "describe":
                await _describe(admin, arguments)
            elif arguments.action == "abort":
                await _abort(admin, arguments)
            else:
                head, rows = await _TABLES[arguments.action](admin, arguments)
                if arguments.json:
                    say_json(as_objects(head, rows))
                    return
                for line in format_table(head, rows):
                    say(line)

    return run_client(work, arguments.bootstrap_server)


async def _list(admin: Admin, arguments: argparse.Namespace) -> tuple[tuple[str, ...], list[Row]]:
    rows: list[Row] = []
    for node, answer in (await admin.ask_each(ListTransactionsRequest(), ListTransactionsResponse)).items():
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), f"broker {node}")
        rows += [
            (found.transactional_id, node, found.producer_id, found.transaction_state)
            for found in answer.transaction_states
        ]
    return LIST_HEAD, sorted(rows)


async def _describe(admin: Admin, arguments: argparse.Namespace) -> None:
    state = await admin.describe_transaction(arguments.transactional_id)
    started_ms = state.transaction_start_time_ms
    duration_ms = int(time.time() * 1000) - started_ms if started_ms >= 0 else None
    fields: dict[str, object] = {
        "TransactionalId": state.transactional_id,
        "ProducerId": state.producer_id,
        "ProducerEpoch": state.producer_epoch,
        "TransactionState": state.transaction_state,
        "TransactionTimeoutMs": state.transaction_timeout_ms,
        "CurrentTransactionStartTimeMs": started_ms if started_ms >= 0 else None,
        "TransactionDurationMs": duration_ms,
        "TopicPartitions": [f"{topic.topic}-{index}" for topic in state.topics for index in topic.partitions],
    }
    if arguments.json:
        say_json(fields)
        return
    for name, value in fields.items():
        shown = ",".join(value) if isinstance(value, list) else value
        say(f"{name}: {'None' if shown is None else shown}")


async def _describe_producers(admin: Admin, arguments: argparse.Namespace) -> tuple[tuple[str, ...], list[Row]]:
    rows: list[Row] = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.last_sequence,
            producer.last_timestamp,
            None if producer.current_txn_start_offset == NOT_OPEN else producer.current_txn_start_offset,
        )
        for producer in await _producers_of(admin, arguments)
    ]
    return PRODUCER_HEAD, rows


async def _producers_of(admin: Admin, arguments: argparse.Namespace) -> list[ProducerState]:
    place = (arguments.topic, arguments.partition)
    return (await admin.describe_producers([place]))[place]


async def _abort(admin: Admin, arguments: argparse.Namespace) -> None:
    place = (arguments.topic, arguments.partition)
    producer = (arguments.producer_id, arguments.producer_epoch, arguments.coordinator_epoch)
    if (arguments.start_offset is None) == any(value is None for value in producer):
        raise UsageError("abort needs --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    if arguments.start_offset is not None:
        found = [
            known
            for known in await _producers_of(admin, arguments)
            if known.current_txn_start_offset == arguments.start_offset
        ]
        if not found:
            raise UsageError(f"no open transaction of {place[0]}-{place[1]} begins at offset {arguments.start_offset}")
        # As kafka-transactions: a coordinator that never wrote a marker there has no epoch.
        producer = (found[0].producer_id, found[0].producer_epoch, max(found[0].coordinator_epoch, 0))
    await admin.abort_transaction(place, *producer)
    say(f"Aborted the transaction of producer {producer[0]} in {place[0]}-{place[1]}.")


async def _find_hanging(admin: Admin, arguments: argparse.Namespace) -> tuple[tuple[str, ...], list[Row]]:
    """Return open transactions that are too old and that their coordinator does not have (KIP-664)."""
    if arguments.partition is not None and arguments.topic is None:
        raise UsageError("--partition needs --topic")
    topics = await admin.describe_topics(None if arguments.topic is None else [arguments.topic])
    places = [
        (topic.name, state.index)
        for topic in topics
        for state in topic.partitions
        if state.leader is not None and arguments.partition in (None, state.index)
    ]
    now_ms = int(time.time() * 1000)
    oldest_ms = now_ms - arguments.max_transaction_timeout * MINUTE_MS
    old: defaultdict[int, list[tuple[AnyTopicPartition, ProducerState]]] = defaultdict(list)
    for place, producers in (await admin.describe_producers(places)).items():
        for producer in producers:
            if producer.current_txn_start_offset != NOT_OPEN and producer.last_timestamp <= oldest_ms:
                old[producer.producer_id].append((place, producer))
    if not old:
        return HANGING_HEAD, []
    rows: list[Row] = []
    ids = {found.producer_id: found.transactional_id for found in await admin.list_transactions(producer_ids=old)}
    for producer_id, candidates in old.items():
        known = await _partitions_in_transaction(admin, ids.get(producer_id))
        rows += [
            (
                *place,
                producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp,
                (now_ms - producer.last_timestamp) // MINUTE_MS,
            )
            for place, producer in candidates
            if (place, producer.producer_epoch) not in known
        ]
    return HANGING_HEAD, sorted(rows, key=str)


async def _partitions_in_transaction(admin: Admin, transactional_id: str | None) -> set[tuple[AnyTopicPartition, int]]:
    """Return the partitions that a coordinator will end, each with the epoch of the producer."""
    if transactional_id is None:
        return set()
    try:
        state = await admin.describe_transaction(transactional_id)
    except BrokerError as error:
        if error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return set()
        raise
    return {((topic.topic, index), state.producer_epoch) for topic in state.topics for index in topic.partitions}


_TABLES = {"list": _list, "describe-producers": _describe_producers, "find-hanging": _find_hanging}
