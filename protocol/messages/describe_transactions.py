"""DescribeTransactions (key 65): state and partitions of transactional ids (KIP-664)."""

from __future__ import annotations

from ..schema import (
    ErrorCodeNumber,
    Int16,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    ProducerId,
    String,
    Struct,
    TopicName,
    TransactionalId,
)


class DescribeTransactionsRequest(Message, versions="0", flexible="0+"):
    transactional_ids: list[TransactionalId] = []


class TopicData(Struct):
    topic: TopicName = ""
    partitions: list[PartitionIndex] = []


class TransactionState(Struct):
    error_code: ErrorCodeNumber = 0
    transactional_id: TransactionalId = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    topics: list[TopicData] = []


class DescribeTransactionsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
