"""What a group's leader tells a consumer inside SyncGroup: `assignment` is an int16 version and then this message."""

from __future__ import annotations

from ..schema import Bytes, Message, PartitionIndex, Struct, TopicName


class TopicPartition(Struct):
    topic: TopicName = ""
    partitions: list[PartitionIndex] = []


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = []
    user_data: Bytes | None = None
