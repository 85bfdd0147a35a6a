"""Metadata (key 3): the brokers, and which of them leads each partition of some topics.

- v0 cannot tell "no topics" from "all topics": an empty list means all. From v1 on, null means all, empty means none.
- v1 adds racks, the controller and `is_internal`; v2 the cluster id; v3 a throttle time; v5 offline replicas.
- v4 lets the client forbid that a missing topic is created by asking for it.
- v7 adds leader epochs (KIP-320); v8 authorized operations (KIP-430), those of the cluster leave again in v11.
- v9 is flexible; v10 adds topic ids, v12 can ask by id alone, then `name` is null (KIP-516).
- v13 can fail as a whole, with REBOOTSTRAP_REQUIRED (KIP-1102).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MINUS_ONE_ON_ERROR,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Message,
    Nullable,
    PartitionIndex,
    String,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class MetadataRequestTopic(Struct):
    topic_id: Annotated[TopicId, Versions("10+"), IGNORABLE] = NO_UUID
    name: Annotated[TopicName | None, Nullable("10+")] = ""


class MetadataRequest(Message, versions="0-13", flexible="9+"):
    topics: Annotated[list[MetadataRequestTopic] | None, Nullable("1+")] = []
    allow_auto_topic_creation: Annotated[Bool, Versions("4+")] = True
    include_cluster_authorized_operations: Annotated[Bool, Versions("8-10")] = False
    include_topic_authorized_operations: Annotated[Bool, Versions("8+")] = False


class MetadataResponseBroker(Struct):
    node_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    rack: Annotated[String | None, Versions("1+"), IGNORABLE] = None


class MetadataResponsePartition(Struct):
    error_code: ErrorCodeNumber = 0
    partition_index: PartitionIndex = 0
    leader_id: Annotated[BrokerId, MINUS_ONE_ON_ERROR] = 0
    leader_epoch: Annotated[Int32, Versions("7+"), IGNORABLE] = -1
    replica_nodes: list[BrokerId] = []
    isr_nodes: list[BrokerId] = []
    offline_replicas: Annotated[list[BrokerId], Versions("5+"), IGNORABLE] = []


class MetadataResponseTopic(Struct):
    error_code: ErrorCodeNumber = 0
    name: Annotated[TopicName | None, Nullable("12+")] = ""
    topic_id: Annotated[TopicId, Versions("10+"), IGNORABLE] = NO_UUID
    is_internal: Annotated[Bool, Versions("1+"), IGNORABLE] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, Versions("8+")] = -0x80000000


class MetadataResponse(Message, versions="0-13", flexible="9+"):
    throttle_time_ms: Annotated[Int32, Versions("3+"), IGNORABLE] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[String | None, Versions("2+"), IGNORABLE] = None
    controller_id: Annotated[BrokerId, Versions("1+"), IGNORABLE] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, Versions("8-10")] = -0x80000000
    error_code: Annotated[ErrorCodeNumber, Versions("13+"), IGNORABLE] = 0
