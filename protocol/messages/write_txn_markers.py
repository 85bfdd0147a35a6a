"""WriteTxnMarkers (key 27): a transaction coordinator has control batches written to the partitions of a transaction.

v1 is flexible. Spoken between brokers, and by the admin client to abort a hanging transaction (KIP-664).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    ErrorCodeNumber,
    Int8,
    Int16,
    Int32,
    Message,
    PartitionIndex,
    ProducerId,
    Struct,
    TopicName,
    Versions,
)


class WritableTxnMarkerTopic(Struct):
    name: TopicName = ""
    partition_indexes: list[PartitionIndex] = []


class WritableTxnMarker(Struct):
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = []
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, Versions("2+"), IGNORABLE] = 0


class WriteTxnMarkersRequest(Message, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: PartitionIndex = 0
    error_code: ErrorCodeNumber = 0


class WritableTxnMarkerTopicResult(Struct):
    name: TopicName = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: ProducerId = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(Message, versions="0-2", flexible="1+"):
    markers: list[WritableTxnMarkerResult] = []
