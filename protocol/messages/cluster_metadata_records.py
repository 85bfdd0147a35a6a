"""Records of `__cluster_metadata`: each is an unsigned varint frame version (1), type and version, then the message.

The type is the record's api key below. A reader passes over the types that it does not know; what Kafka's controller
writes besides these concerns ZooKeeper, access control and delegation tokens. Source: Kafka `MetadataRecordSerde`.
"""

from __future__ import annotations

from typing import Annotated, Final

from ..schema import (
    NO_UUID,
    Bool,
    BrokerId,
    Bytes,
    Float64,
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
    Uint16,
    Uuid,
    Versions,
)


class BrokerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class BrokerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterBrokerRecord(Message, versions="0-3", flexible="0+"):
    broker_id: BrokerId = 0
    is_migrating_zk_broker: Annotated[Bool, Versions("2+")] = False
    incarnation_id: Uuid = NO_UUID
    broker_epoch: Int64 = 0
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: String | None = ""
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, Versions("1+")] = False
    log_dirs: Annotated[list[Uuid], Versions("3+"), Tag(0)] = []


class UnregisterBrokerRecord(Message, versions="0", flexible="0+"):
    broker_id: BrokerId = 0
    broker_epoch: Int64 = 0


class TopicRecord(Message, versions="0", flexible="0+"):
    name: TopicName = ""
    topic_id: TopicId = NO_UUID


class PartitionRecord(Message, versions="0-2", flexible="0+"):
    partition_id: PartitionIndex = -1
    topic_id: TopicId = NO_UUID
    replicas: list[BrokerId] = []
    isr: list[BrokerId] = []
    removing_replicas: list[BrokerId] = []
    adding_replicas: list[BrokerId] = []
    leader: BrokerId = -1
    leader_recovery_state: Annotated[Int8, Tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], Versions("1+")] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, Versions("2+"), Tag(1)] = None
    last_known_elr: Annotated[list[Int32] | None, Versions("2+"), Tag(2)] = None


class ConfigRecord(Message, versions="0", flexible="0+"):
    resource_type: Int8 = 0
    resource_name: String = ""
    name: String = ""
    value: String | None = ""


class PartitionChangeRecord(Message, versions="0-2", flexible="0+"):
    partition_id: PartitionIndex = -1
    topic_id: TopicId = NO_UUID
    isr: Annotated[list[BrokerId] | None, Tag(0)] = None
    leader: Annotated[BrokerId, Tag(1)] = -2
    replicas: Annotated[list[BrokerId] | None, Tag(2)] = None
    removing_replicas: Annotated[list[BrokerId] | None, Tag(3)] = None
    adding_replicas: Annotated[list[BrokerId] | None, Tag(4)] = None
    leader_recovery_state: Annotated[Int8, Tag(5)] = -1
    directories: Annotated[list[Uuid] | None, Versions("1+"), Tag(8)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, Versions("2+"), Tag(6)] = None
    last_known_elr: Annotated[list[Int32] | None, Versions("2+"), Tag(7)] = None


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    topic_id: TopicId = NO_UUID


class UserScramCredentialRecord(Message, versions="0", flexible="0+"):
    name: String = ""
    mechanism: Int8 = 0
    salt: Bytes = b""
    stored_key: Bytes = b""
    server_key: Bytes = b""
    iterations: Int32 = 0


class FeatureLevelRecord(Message, versions="0", flexible="0+"):
    name: String = ""
    feature_level: Int16 = 0


class QuotaEntity(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class ClientQuotaRecord(Message, versions="0", flexible="0+"):
    entity: list[QuotaEntity] = []
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    broker_id: BrokerId = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(Message, versions="0-2", flexible="0+"):
    broker_id: BrokerId = 0
    broker_epoch: Int64 = 0
    fenced: Annotated[Int8, Tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, Versions("1+"), Tag(1)] = 0
    log_dirs: Annotated[list[Uuid], Versions("2+"), Tag(2)] = []


class AccessControlEntryRecord(Message, versions="0", flexible="0+"):
    id: Uuid = NO_UUID
    resource_type: Int8 = 0
    resource_name: String = ""
    pattern_type: Int8 = 0
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class RemoveAccessControlEntryRecord(Message, versions="0", flexible="0+"):
    id: Uuid = NO_UUID


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+"):
    name: String = ""
    mechanism: Int8 = 0


class DelegationTokenRecord(Message, versions="0", flexible="0+"):
    owner: String = ""
    requester: String = ""
    renewers: list[String] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+"):
    token_id: String = ""


RECORD_TYPES: Final[dict[int, type[Message]]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
    26: RemoveDelegationTokenRecord,
}
"""The class of each record by its type."""
