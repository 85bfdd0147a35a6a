"""Keys and values in `__transaction_state`, each after an int16 version; Kafka 3.9 writes v0 of both.

`transaction_status`: 0 Empty, 1 Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7
PrepareEpochFence. The partitions are null while there is no transaction.
"""

from __future__ import annotations

from ..schema import Int8, Int16, Int32, Int64, Message, String, Struct


class TransactionLogKey(Message, versions="0"):
    transactional_id: String = ""


class PartitionsSchema(Struct):
    topic: String = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
