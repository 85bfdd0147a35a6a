"""ControlledShutdown (key 7): a broker about to stop asks a ZooKeeper-based controller to move its leaderships away.

v0 is the one request whose header has no client id. Spoken between brokers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    SENDER,
    BrokerId,
    ErrorCodeNumber,
    Int64,
    Message,
    PartitionIndex,
    Struct,
    TopicName,
    Versions,
)


class ControlledShutdownRequest(Message, versions="0-3", flexible="3+"):
    broker_id: Annotated[BrokerId, SENDER] = 0
    broker_epoch: Annotated[Int64, Versions("2+"), IGNORABLE] = -1


class RemainingPartition(Struct):
    topic_name: TopicName = ""
    partition_index: PartitionIndex = 0


class ControlledShutdownResponse(Message, versions="0-3", flexible="3+"):
    error_code: ErrorCodeNumber = 0
    remaining_partitions: list[RemainingPartition] = []
