"""UpdateMetadata (key 6): a ZooKeeper-based controller spreads the state of the cluster.

Spoken between brokers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    PartitionIndex,
    String,
    Struct,
    Tag,
    TopicId,
    TopicName,
    Versions,
)


class UpdateMetadataPartitionState(Struct):
    topic_name: Annotated[TopicName, Versions("0-4"), IGNORABLE] = ""
    partition_index: PartitionIndex = 0
    controller_epoch: Int32 = 0
    leader: BrokerId = 0
    leader_epoch: Int32 = 0
    isr: list[BrokerId] = []
    zk_version: Int32 = 0
    replicas: list[BrokerId] = []
    offline_replicas: Annotated[list[BrokerId], Versions("4+"), IGNORABLE] = []


class UpdateMetadataTopicState(Struct):
    topic_name: TopicName = ""
    topic_id: Annotated[TopicId, Versions("7+"), IGNORABLE] = NO_UUID
    partition_states: list[UpdateMetadataPartitionState] = []


class UpdateMetadataEndpoint(Struct):
    port: Int32 = 0
    host: String = ""
    listener: Annotated[String, Versions("3+"), IGNORABLE] = ""
    security_protocol: Int16 = 0


class UpdateMetadataBroker(Struct):
    id: BrokerId = 0
    v0_host: Annotated[String, Versions("0"), IGNORABLE] = ""
    v0_port: Annotated[Int32, Versions("0"), IGNORABLE] = 0
    endpoints: Annotated[list[UpdateMetadataEndpoint], Versions("1+"), IGNORABLE] = []
    rack: Annotated[String | None, Versions("2+"), IGNORABLE] = ""


class UpdateMetadataRequest(Message, versions="0-8", flexible="6+"):
    controller_id: BrokerId = 0
    is_kraft_controller: Annotated[Bool, Versions("8+")] = False
    type: Annotated[Int8, Versions("8+"), Tag(0)] = 0
    controller_epoch: Int32 = 0
    broker_epoch: Annotated[Int64, Versions("5+"), IGNORABLE] = -1
    ungrouped_partition_states: Annotated[list[UpdateMetadataPartitionState], Versions("0-4")] = []
    topic_states: Annotated[list[UpdateMetadataTopicState], Versions("5+")] = []
    live_brokers: list[UpdateMetadataBroker] = []


class UpdateMetadataResponse(Message, versions="0-8", flexible="6+"):
    error_code: ErrorCodeNumber = 0
