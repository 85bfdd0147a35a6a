"""The records of `__cluster_metadata` (KIP-631), of which a broker's whole metadata is the sum.

A record's value is an unsigned varint 1 (the frame's version), one for the type, one for the version, then the message.
`RECORD_TYPES` has the types. In the two partition records a tagged field that is absent means "unchanged".
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    NO_UUID,
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Tag,
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
    broker_id: Int32 = 0
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
    broker_id: Int32 = 0
    broker_epoch: Int64 = 0


class TopicRecord(Message, versions="0", flexible="0+"):
    name: String = ""
    topic_id: Uuid = NO_UUID


class PartitionRecord(Message, versions="0-2", flexible="0+"):
    partition_id: Int32 = -1
    topic_id: Uuid = NO_UUID
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
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
    partition_id: Int32 = -1
    topic_id: Uuid = NO_UUID
    isr: Annotated[list[Int32] | None, Tag(0)] = None
    leader: Annotated[Int32, Tag(1)] = -2
    replicas: Annotated[list[Int32] | None, Tag(2)] = None
    removing_replicas: Annotated[list[Int32] | None, Tag(3)] = None
    adding_replicas: Annotated[list[Int32] | None, Tag(4)] = None
    leader_recovery_state: Annotated[Int8, Tag(5)] = -1
    directories: Annotated[list[Uuid] | None, Versions("1+"), Tag(8)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, Versions("2+"), Tag(6)] = None
    last_known_elr: Annotated[list[Int32] | None, Versions("2+"), Tag(7)] = None


class FenceBrokerRecord(Message, versions="0", flexible="0+"):
    id: Int32 = 0
    epoch: Int64 = 0


class UnfenceBrokerRecord(Message, versions="0", flexible="0+"):
    id: Int32 = 0
    epoch: Int64 = 0


class RemoveTopicRecord(Message, versions="0", flexible="0+"):
    topic_id: Uuid = NO_UUID


class DelegationTokenRecord(Message, versions="0", flexible="0+"):
    owner: String = ""
    requester: String = ""
    renewers: list[String] = []
    issue_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    expiration_timestamp: Int64 = 0
    token_id: String = ""


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


class EntityData(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class ClientQuotaRecord(Message, versions="0", flexible="0+"):
    entity: list[EntityData] = []
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class ProducerIdsRecord(Message, versions="0", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1
    next_producer_id: Int64 = 0


class BrokerRegistrationChangeRecord(Message, versions="0-2", flexible="0+"):
    broker_id: Int32 = 0
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


class NoOpRecord(Message, versions="0", flexible="0+"):
    """Nothing but the header."""


class RemoveUserScramCredentialRecord(Message, versions="0", flexible="0+"):
    name: String = ""
    mechanism: Int8 = 0


class BeginTransactionRecord(Message, versions="0", flexible="0+"):
    name: Annotated[String | None, Tag(0)] = None


class EndTransactionRecord(Message, versions="0", flexible="0+"):
    """Nothing but the header."""


class AbortTransactionRecord(Message, versions="0", flexible="0+"):
    reason: Annotated[String | None, Tag(0)] = None


class RemoveDelegationTokenRecord(Message, versions="0", flexible="0+"):
    token_id: String = ""


class ControllerEndpoint(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0
    security_protocol: Int16 = 0


class ControllerFeature(Struct):
    name: String = ""
    min_supported_version: Int16 = 0
    max_supported_version: Int16 = 0


class RegisterControllerRecord(Message, versions="0", flexible="0+"):
    controller_id: Int32 = 0
    incarnation_id: Uuid = NO_UUID
    zk_migration_ready: Bool = False
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


RECORD_TYPES: dict[int, type[Message]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
}
"""The message class of each type of record."""
