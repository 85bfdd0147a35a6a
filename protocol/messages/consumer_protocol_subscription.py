"""What a consumer tells its group's leader inside JoinGroup: `metadata` is an int16 version and then this message.

v1 lists the partitions it owns, for cooperative rebalancing (KIP-429), v2 since which generation (KIP-792), v3 its rack
(KIP-881). An unknown, higher version is read as v3; it can only have more at the end.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bytes, Int32, Message, PartitionIndex, String, Struct, TopicName, Versions


class TopicPartition(Struct):
    topic: TopicName = ""
    partitions: list[PartitionIndex] = []


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[String] = []
    user_data: Bytes | None = None
    owned_partitions: Annotated[list[TopicPartition], Versions("1+"), IGNORABLE] = []
    generation_id: Annotated[Int32, Versions("2+"), IGNORABLE] = -1
    rack_id: Annotated[String | None, Versions("3+"), IGNORABLE] = None
