"""Transactions as records of `__transaction_state`, in Kafka's own format (`TransactionLogKey`, `TransactionLogValue`).

A key or value is the version of its schema as int16, then the message. Kafka 3.9 writes version 0 of both; for
transactions V2 the value is of version 1, as in Kafka 4.
"""

from __future__ import annotations

from collections import defaultdict
from struct import Struct

from ....protocol.codec import decode, encode
from ....protocol.errors import DecodeError
from ....protocol.messages.transaction_log_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ....protocol.topic_partition import TopicPartition
from .transaction import Transaction, TransactionState

VERSION = Struct(">h")
KEY_VERSION = 0
VALUE_VERSION, VALUE_VERSION_V2 = 0, 1
TRANSACTION_VERSION_2 = 2
"""Level of `transaction.version` that means transactions V2 (Kafka `TransactionVersion.TV_2`)."""


def key_bytes(transactional_id: str) -> bytes:
    """Return the record key of a transactional id."""
    return VERSION.pack(KEY_VERSION) + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def value_bytes(transaction: Transaction) -> bytes:
    """Return the record value of a transaction; partitions are null in state Empty, as Kafka writes them."""
    by_topic: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(transaction.partitions):
        by_topic[topic].append(partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_timestamp,
        transaction_start_timestamp_ms=transaction.start_timestamp,
    )
    version = VALUE_VERSION
    if transaction.is_v2:
        version = VALUE_VERSION_V2
        value.client_transaction_version = TRANSACTION_VERSION_2
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
    return VERSION.pack(version) + encode(value, version)


def read_key(data: bytes) -> str | None:
    """Return the transactional id of a record key, None for a key of an unknown version. Raises DecodeError."""
    if _version(data) != KEY_VERSION:
        return None
    return decode(TransactionLogKey, data[VERSION.size :], KEY_VERSION).transactional_id


def read_value(transactional_id: str, data: bytes) -> Transaction:
    """Return the transaction in a record value. Raises DecodeError for an unknown version or state."""
    version = _version(data)
    if version not in (VALUE_VERSION, VALUE_VERSION_V2):
        raise DecodeError(f"a transaction of version {version}")
    value = decode(TransactionLogValue, data[VERSION.size :], version)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError as error:
        raise DecodeError(str(error)) from error
    partitions = (
        TopicPartition(schema.topic, partition)
        for schema in value.transaction_partitions or ()
        for partition in schema.partition_ids
    )
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        start_timestamp=value.transaction_start_timestamp_ms,
        last_update_timestamp=value.transaction_last_update_timestamp_ms,
        is_v2=value.client_transaction_version >= TRANSACTION_VERSION_2,
        next_producer_id=value.next_producer_id,
    )


def _version(data: bytes) -> int:
    if len(data) < VERSION.size:
        raise DecodeError("a record too short for a version")
    version: int = VERSION.unpack_from(data)[0]
    return version
