"""Keys and values in `__consumer_offsets` that belong to offsets and classic groups.

Each is an int16 and then the message. For a key that number tells its type: 0 and 1 `OffsetCommitKey`, 2
`GroupMetadataKey`, from 3 on see `consumer_group_records.py`. For a value it is the version; Kafka 3.9 writes
`OffsetCommitValue` v3 (v1 if the offset has an expiry of its own) and `GroupMetadataValue` v3. A record without a value
deletes what its key names. `subscription` and `assignment` are the members' own bytes.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bytes, Int32, Int64, Message, PartitionIndex, String, Struct, TopicName, Versions


class OffsetCommitKey(Message, versions="0-1"):
    group: String = ""
    topic: TopicName = ""
    partition: PartitionIndex = 0


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: Int64 = 0
    leader_epoch: Annotated[Int32, Versions("3+"), IGNORABLE] = -1
    metadata: String = ""
    commit_timestamp: Int64 = 0
    expire_timestamp: Annotated[Int64, Versions("1"), IGNORABLE] = -1


class GroupMetadataKey(Message, versions="2"):
    group: String = ""


class MemberMetadata(Struct):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions("3+"), IGNORABLE] = None
    client_id: String = ""
    client_host: String = ""
    rebalance_timeout: Annotated[Int32, Versions("1+"), IGNORABLE] = -1
    session_timeout: Int32 = 0
    subscription: Bytes = b""
    assignment: Bytes = b""


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: String = ""
    generation: Int32 = 0
    protocol: String | None = ""
    leader: String | None = ""
    current_state_timestamp: Annotated[Int64, Versions("2+"), IGNORABLE] = -1
    members: list[MemberMetadata] = []
