"""AddPartitionsToTxn (key 24): announce the partitions that a transaction will write to (KIP-98).

v3 is flexible. From v4 on `transactions` holds several at once, for brokers that verify them, and the fields of v0 to
v3 are gone (KIP-890).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    ErrorCodeNumber,
    Int16,
    Int32,
    Message,
    PartitionIndex,
    ProducerId,
    Struct,
    TopicName,
    TransactionalId,
    Versions,
)


class AddPartitionsToTxnTopic(Struct):
    name: TopicName = ""
    partitions: list[PartitionIndex] = []


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: TransactionalId = ""
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnRequest(Message, versions="0-5", flexible="3+"):
    transactions: Annotated[list[AddPartitionsToTxnTransaction], Versions("4+")] = []
    v3_and_below_transactional_id: Annotated[TransactionalId, Versions("0-3")] = ""
    v3_and_below_producer_id: Annotated[ProducerId, Versions("0-3")] = 0
    v3_and_below_producer_epoch: Annotated[Int16, Versions("0-3")] = 0
    v3_and_below_topics: Annotated[list[AddPartitionsToTxnTopic], Versions("0-3")] = []


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: PartitionIndex = 0
    partition_error_code: ErrorCodeNumber = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: TopicName = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Struct):
    transactional_id: TransactionalId = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnResponse(Message, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: Annotated[ErrorCodeNumber, Versions("4+"), IGNORABLE] = 0
    results_by_transaction: Annotated[list[AddPartitionsToTxnResult], Versions("4+")] = []
    results_by_topic_v3_and_below: Annotated[list[AddPartitionsToTxnTopicResult], Versions("0-3")] = []
