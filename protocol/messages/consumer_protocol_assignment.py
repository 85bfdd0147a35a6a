"""What a group's leader tells a consumer inside SyncGroup: `assignment` is an int16 version and then this message."""

from __future__ import annotations

from ..schema import Bytes, Int32, Message, String, Struct


class TopicPartition(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition] = []
    user_data: Bytes | None = None
