"""Keys and values in `__transaction_state`, each after an int16 version; Kafka 3.9 writes v0 of both.

v1 of the value is flexible; Kafka 4 puts into its tags what transactions V2 need to go on after a restart (KIP-890).

`transaction_status`: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7
PrepareEpochFence. The partitions are null while there is no transaction.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    ProducerId,
    Struct,
    Tag,
    TopicName,
    TransactionalId,
    Versions,
)


class TransactionLogKey(Message, versions="0"):
    transactional_id: TransactionalId = ""


class PartitionsSchema(Struct):
    topic: TopicName = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    previous_producer_id: Annotated[Int64, Versions("1+"), Tag(0)] = -1
    next_producer_id: Annotated[Int64, Versions("1+"), Tag(1)] = -1
    client_transaction_version: Annotated[Int16, Versions("1+"), Tag(2)] = 0
