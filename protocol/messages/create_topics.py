"""CreateTopics (key 19): create topics, by partition count and replication factor or with explicit replicas.

- v1 can only validate, and explains errors; v4 takes -1 for the broker's default count and factor (KIP-464).
- v5 is flexible and answers with the topic's configuration (KIP-525); v7 with its id (KIP-516).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    MENTIONED,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int8,
    Int16,
    Int32,
    Message,
    PartitionIndex,
    String,
    Struct,
    Tag,
    TopicId,
    TopicName,
    Versions,
)


class CreatableReplicaAssignment(Struct):
    partition_index: PartitionIndex = 0
    broker_ids: list[BrokerId] = []


class CreatableTopicConfig(Struct):
    name: String = ""
    value: String | None = ""


class CreatableTopic(Struct):
    name: TopicName = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: Annotated[list[CreatableReplicaAssignment], MENTIONED] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: Annotated[Bool, Versions("1+")] = False


class CreatableTopicConfigs(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    config_source: Annotated[Int8, IGNORABLE] = -1
    is_sensitive: Bool = False


class CreatableTopicResult(Struct):
    name: TopicName = ""
    topic_id: Annotated[TopicId, Versions("7+"), IGNORABLE] = NO_UUID
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, Versions("1+"), IGNORABLE] = ""
    topic_config_error_code: Annotated[ErrorCodeNumber, Versions("5+"), Tag(0), IGNORABLE] = 0
    num_partitions: Annotated[Int32, Versions("5+"), IGNORABLE] = -1
    replication_factor: Annotated[Int16, Versions("5+"), IGNORABLE] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, Versions("5+"), IGNORABLE] = []


class CreateTopicsResponse(Message, versions="0-7", flexible="5+"):
    throttle_time_ms: Annotated[Int32, Versions("2+"), IGNORABLE] = 0
    topics: list[CreatableTopicResult] = []
