"""Requests of every API, each with the rights that may matter, for both Kafka and Gregor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from gregor.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from gregor.protocol.apis import ApiKey, request_class
from gregor.protocol.field_meanings import field_meanings
from tests.conformance import authorization_bodies as bodies
from tests.conformance.authorization_bodies import Place

TOPIC, GROUP, CLUSTER, TXN = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
)


class Grant(NamedTuple):
    """A right: an operation on a resource of a place, `topic` or another of its names."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str = ""

    def resource_name(self, place: Place) -> str:
        names = {TOPIC: self.name or "topic", GROUP: "group", TXN: "txn"}
        return CLUSTER_NAME if self.resource_type is CLUSTER else str(getattr(place, names[self.resource_type]))

    def __str__(self) -> str:
        return f"{self.operation.name} {self.name or self.resource_type.name}"


@dataclass(frozen=True)
class Case:
    """A request of an API, and the rights that may matter to its answer."""

    name: str
    key: ApiKey
    body: Callable[[Place, int], dict[str, Any]]
    grants: tuple[Grant, ...]
    first: int = 0
    last: int = 99
    has_own_topics: bool = False
    """Whether the request may change topics, so that each client needs topics of its own."""
    lists_all: str = ""
    """The list whose entries are compared only if they name something of the place, for answers that list all."""

    def request(self, place: Place, version: int) -> Any:
        """Return the request of a client."""
        return request_class(self.key)(**_structured(request_class(self.key), self.body(place, version)))


def _structured(cls: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Convert nested dictionaries to the structures that a message declares."""
    meanings = field_meanings(cls)
    result = {}
    for name, value in values.items():
        structure = meanings[name].structure
        if structure is not None and isinstance(value, list):
            value = [structure(**_structured(structure, item)) if isinstance(item, dict) else item for item in value]
        elif structure is not None and isinstance(value, dict):
            value = structure(**_structured(structure, value))
        result[name] = value
    return result


def on(resource_type: AclResourceType, *operations: str, name: str = "") -> tuple[Grant, ...]:
    """Return the rights to operations on a resource."""
    return tuple(Grant(AclOperation[operation], resource_type, name) for operation in operations)


def _plain(**values: Any) -> Callable[[Place, int], dict[str, Any]]:
    """Return a body with equal values in all versions; a callable gets the place."""
    return lambda place, version: {name: value(place) if callable(value) else value for name, value in values.items()}


def _topics(field: str, **entry: Any) -> Callable[[Place, int], dict[str, Any]]:
    """Return a body with three topics, which have ``entry`` beside their name."""
    names = ("topic", "second", "missing")
    return lambda place, version: {"topics": [{field: getattr(place, name), **entry} for name in names]}


CASES: tuple[Case, ...] = (
    Case("produce", ApiKey.PRODUCE, bodies.produce, on(TOPIC, "WRITE")),
    Case(
        "produce in a transaction",
        ApiKey.PRODUCE,
        lambda place, version: bodies.produce(place, version, transactional=True),
        on(TXN, "WRITE"),
        first=3,
    ),
    Case("fetch", ApiKey.FETCH, bodies.fetch, on(TOPIC, "READ") + on(CLUSTER, "CLUSTER_ACTION")),
    Case(
        "fetch as a follower",
        ApiKey.FETCH,
        lambda place, version: bodies.fetch(place, version, replica=7),
        on(TOPIC, "READ"),
    ),
    Case(
        "list offsets",
        ApiKey.LIST_OFFSETS,
        lambda place, version: {
            "replica_id": -1,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}
                for name in (place.topic, place.second, place.missing)
            ],
        },
        on(TOPIC, "DESCRIBE", "READ"),
    ),
    Case("metadata", ApiKey.METADATA, bodies.metadata, on(TOPIC, "DESCRIBE", "CREATE") + on(CLUSTER, "DESCRIBE")),
    Case("metadata of all topics", ApiKey.METADATA, bodies.all_metadata, on(TOPIC, "WRITE", "ALTER_CONFIGS")),
    Case("metadata by id", ApiKey.METADATA, bodies.metadata_by_id, on(TOPIC, "DELETE"), first=12),
    Case(
        "metadata that creates a topic",
        ApiKey.METADATA,
        _plain(topics=lambda place: [{"name": place.missing}]),
        on(TOPIC, "DESCRIBE", "CREATE", name="missing") + on(CLUSTER, "CREATE"),
    ),
    Case("offset commit", ApiKey.OFFSET_COMMIT, bodies.offset_commit, on(GROUP, "READ") + on(TOPIC, "READ"), first=2),
    Case(
        "offset fetch",
        ApiKey.OFFSET_FETCH,
        bodies.offset_fetch,
        on(GROUP, "DESCRIBE") + on(TOPIC, "DESCRIBE"),
        first=1,
    ),
    Case(
        "offset fetch of all topics",
        ApiKey.OFFSET_FETCH,
        lambda place, version: bodies.offset_fetch(place, version, names=False),
        on(GROUP, "READ") + on(TOPIC, "READ"),
        first=2,
    ),
    Case("find a group", ApiKey.FIND_COORDINATOR, bodies.find(0, lambda place: place.group), on(GROUP, "DESCRIBE")),
    Case(
        "find a transaction",
        ApiKey.FIND_COORDINATOR,
        bodies.find(1, lambda place: place.txn),
        on(TXN, "DESCRIBE", "WRITE"),
        first=1,
    ),
    Case("join", ApiKey.JOIN_GROUP, bodies.join, on(GROUP, "READ", "DESCRIBE")),
    Case("heartbeat", ApiKey.HEARTBEAT, _plain(group_id=lambda place: place.group, generation_id=1), on(GROUP, "READ")),
    Case("leave", ApiKey.LEAVE_GROUP, bodies.leave, on(GROUP, "READ")),
    Case("sync", ApiKey.SYNC_GROUP, bodies.sync, on(GROUP, "READ")),
    Case("sync without a protocol", ApiKey.SYNC_GROUP, lambda place, version: bodies.sync(place, 0), (), first=5),
    Case(
        "describe groups",
        ApiKey.DESCRIBE_GROUPS,
        lambda place, version: {
            "groups": [place.group, place.missing],
            **({"include_authorized_operations": True} if version >= 3 else {}),
        },
        on(GROUP, "DESCRIBE", "READ", "DELETE"),
    ),
    Case(
        "list groups",
        ApiKey.LIST_GROUPS,
        _plain(),
        on(GROUP, "DESCRIBE", "DELETE") + on(CLUSTER, "DESCRIBE"),
        lists_all="groups",
    ),
    Case("delete groups", ApiKey.DELETE_GROUPS, _plain(groups_names=lambda place: [place.group]), on(GROUP, "DELETE")),
    Case(
        "create topics",
        ApiKey.CREATE_TOPICS,
        bodies.create_topics,
        on(TOPIC, "CREATE", "DESCRIBE_CONFIGS", name="new") + on(CLUSTER, "CREATE"),
        has_own_topics=True,
    ),
    Case(
        "delete topics",
        ApiKey.DELETE_TOPICS,
        bodies.delete_topics,
        on(TOPIC, "DELETE", "DESCRIBE") + on(CLUSTER, "DELETE"),
        has_own_topics=True,
    ),
    Case(
        "delete topics by id",
        ApiKey.DELETE_TOPICS,
        bodies.delete_by_id,
        on(TOPIC, "DELETE", "DESCRIBE"),
        first=6,
        has_own_topics=True,
    ),
    Case(
        "delete records",
        ApiKey.DELETE_RECORDS,
        _topics("name", partitions=[{"partition_index": 0, "offset": 0}]),
        on(TOPIC, "DELETE"),
    ),
    Case(
        "create partitions",
        ApiKey.CREATE_PARTITIONS,
        lambda place, version: {
            "topics": [{"name": name, "count": 3} for name in (place.topic, place.second, place.missing)],
            "timeout_ms": 5000,
        },
        on(TOPIC, "ALTER"),
        has_own_topics=True,
    ),
    Case(
        "init producer id",
        ApiKey.INIT_PRODUCER_ID,
        _plain(transactional_id=None, transaction_timeout_ms=1000),
        on(CLUSTER, "IDEMPOTENT_WRITE") + on(TOPIC, "WRITE", "READ"),
    ),
    Case(
        "init transactional producer",
        ApiKey.INIT_PRODUCER_ID,
        _plain(transactional_id=lambda place: place.txn, transaction_timeout_ms=1000),
        on(TXN, "WRITE", "DESCRIBE"),
    ),
    Case(
        "leader epochs",
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        _topics("topic", partitions=[{"partition": 0, "leader_epoch": 0}]),
        on(TOPIC, "DESCRIBE") + on(CLUSTER, "CLUSTER_ACTION"),
    ),
    Case(
        "add partitions",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        bodies.add_partitions,
        on(TXN, "WRITE") + on(TOPIC, "WRITE"),
        last=3,
    ),
    Case(
        "add several partitions",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        lambda place, version: bodies.add_partitions(place, version, ("topic", "second", "missing")),
        on(TXN, "WRITE") + on(TOPIC, "WRITE"),
        last=3,
    ),
    Case(
        "add partitions as a broker",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        bodies.add_partitions,
        on(TXN, "WRITE") + on(CLUSTER, "CLUSTER_ACTION"),
        first=4,
    ),
    Case(
        "add offsets",
        ApiKey.ADD_OFFSETS_TO_TXN,
        _plain(transactional_id=lambda place: place.txn, producer_id=777, group_id=lambda place: place.group),
        on(TXN, "WRITE") + on(GROUP, "READ"),
    ),
    Case(
        "end transaction",
        ApiKey.END_TXN,
        _plain(transactional_id=lambda place: place.txn, producer_id=777, committed=True),
        on(TXN, "WRITE"),
    ),
    Case(
        "txn offset commit",
        ApiKey.TXN_OFFSET_COMMIT,
        bodies.txn_offset_commit,
        on(TXN, "WRITE") + on(GROUP, "READ") + on(TOPIC, "READ"),
    ),
    Case(
        "write markers",
        ApiKey.WRITE_TXN_MARKERS,
        bodies.markers,
        on(CLUSTER, "ALTER", "CLUSTER_ACTION"),
        has_own_topics=True,
    ),
    Case("describe acls", ApiKey.DESCRIBE_ACLS, bodies.acl_filter, on(CLUSTER, "DESCRIBE", "ALTER")),
    Case("create acls", ApiKey.CREATE_ACLS, bodies.create_acls, on(CLUSTER, "ALTER")),
    Case(
        "delete acls",
        ApiKey.DELETE_ACLS,
        lambda place, version: {"filters": [bodies.acl_filter(place, version)]},
        on(CLUSTER, "ALTER"),
    ),
    Case(
        "describe configs",
        ApiKey.DESCRIBE_CONFIGS,
        bodies.describe_configs,
        on(TOPIC, "DESCRIBE_CONFIGS", "ALTER_CONFIGS") + on(CLUSTER, "DESCRIBE_CONFIGS"),
    ),
    Case(
        "alter configs",
        ApiKey.ALTER_CONFIGS,
        bodies.alter_configs,
        on(TOPIC, "ALTER_CONFIGS") + on(CLUSTER, "ALTER_CONFIGS"),
    ),
    Case(
        "alter configs incrementally",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        lambda place, version: bodies.alter_configs(place, version, incremental=True),
        on(TOPIC, "ALTER_CONFIGS") + on(CLUSTER, "ALTER_CONFIGS"),
    ),
    Case(
        "alter loggers",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        _plain(
            validate_only=True,
            resources=[{"resource_type": 8, "resource_name": "1", "configs": []}],
        ),
        on(CLUSTER, "ALTER_CONFIGS", "CLUSTER_ACTION"),
    ),
    Case(
        "alter log directories",
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        lambda place, version: {
            "dirs": [{"path": "/nowhere", "topics": [{"name": place.topic, "partitions": [0]}]}],
        },
        on(CLUSTER, "ALTER"),
    ),
    Case(
        "describe log directories",
        ApiKey.DESCRIBE_LOG_DIRS,
        lambda place, version: {"topics": bodies.partitions_of(place, "topic")},
        on(CLUSTER, "DESCRIBE"),
    ),
    Case(
        "elect leaders",
        ApiKey.ELECT_LEADERS,
        lambda place, version: {"topic_partitions": bodies.partitions_of(place, "topic", ("topic",))},
        on(CLUSTER, "ALTER"),
    ),
    Case(
        "alter reassignments",
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        lambda place, version: {
            "topics": [{"name": place.topic, "partitions": [{"partition_index": 0, "replicas": None}]}]
        },
        on(CLUSTER, "ALTER"),
    ),
    Case("list reassignments", ApiKey.LIST_PARTITION_REASSIGNMENTS, _plain(topics=None), on(CLUSTER, "DESCRIBE")),
    Case(
        "offset delete",
        ApiKey.OFFSET_DELETE,
        lambda place, version: {
            "group_id": place.group,
            "topics": [
                {"name": name, "partitions": [{"partition_index": 0}]}
                for name in (place.topic, place.second, place.missing)
            ],
        },
        on(GROUP, "DELETE") + on(TOPIC, "READ"),
    ),
    Case(
        "describe quotas",
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        _plain(components=[{"entity_type": "user", "match_type": 0, "match": "nobody"}], strict=True),
        on(CLUSTER, "DESCRIBE_CONFIGS", "ALTER_CONFIGS"),
    ),
    Case(
        "alter quotas",
        ApiKey.ALTER_CLIENT_QUOTAS,
        _plain(
            entries=[
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
                }
            ],
            validate_only=True,
        ),
        on(CLUSTER, "ALTER_CONFIGS"),
    ),
    Case(
        "describe scram users",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        _plain(users=[{"name": "nobody"}]),
        on(CLUSTER, "DESCRIBE"),
    ),
    Case(
        "alter scram users",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        _plain(deletions=[{"name": "nobody", "mechanism": 1}], upsertions=[]),
        on(CLUSTER, "ALTER"),
    ),
    Case(
        "describe quorum",
        ApiKey.DESCRIBE_QUORUM,
        _plain(topics=[{"topic_name": "nowhere", "partitions": [{"partition_index": 0}]}]),
        on(CLUSTER, "DESCRIBE"),
    ),
    Case(
        "update features",
        ApiKey.UPDATE_FEATURES,
        lambda place, version: {
            "feature_updates": [{"feature": "nothing", "max_version_level": 1}],
            **({"validate_only": True} if version else {}),
        },
        on(CLUSTER, "ALTER"),
    ),
    Case(
        "describe cluster",
        ApiKey.DESCRIBE_CLUSTER,
        _plain(include_cluster_authorized_operations=True),
        on(CLUSTER, "DESCRIBE", "ALTER", "CREATE"),
    ),
    Case(
        "describe producers",
        ApiKey.DESCRIBE_PRODUCERS,
        lambda place, version: {
            "topics": [
                {"name": name, "partition_indexes": [0]}
                for name in (place.topic, place.second, place.missing, "no topic!")
            ]
        },
        on(TOPIC, "READ"),
    ),
    Case("unregister broker", ApiKey.UNREGISTER_BROKER, _plain(broker_id=999), on(CLUSTER, "ALTER")),
    Case(
        "describe transactions",
        ApiKey.DESCRIBE_TRANSACTIONS,
        _plain(transactional_ids=lambda place: [place.txn]),
        on(TXN, "DESCRIBE"),
    ),
    Case(
        "list transactions",
        ApiKey.LIST_TRANSACTIONS,
        _plain(),
        on(TXN, "DESCRIBE", "WRITE"),
        lists_all="transaction_states",
    ),
    Case(
        "consumer group heartbeat",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        bodies.consumer_heartbeat,
        on(GROUP, "READ"),
    ),
    Case(
        "describe consumer groups",
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        _plain(group_ids=lambda place: [place.group], include_authorized_operations=True),
        on(GROUP, "DESCRIBE"),
    ),
    Case(
        "describe topic partitions",
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        _topics("name"),
        on(TOPIC, "DESCRIBE", "READ"),
    ),
    Case(
        "list client metrics",
        ApiKey.LIST_CLIENT_METRICS_RESOURCES,
        _plain(),
        on(CLUSTER, "DESCRIBE_CONFIGS"),
    ),
    Case(
        "add voter",
        ApiKey.ADD_RAFT_VOTER,
        _plain(cluster_id=None, timeout_ms=1000, voter_id=9),
        on(CLUSTER, "ALTER"),
    ),
    Case("remove voter", ApiKey.REMOVE_RAFT_VOTER, _plain(cluster_id=None, voter_id=9), on(CLUSTER, "ALTER")),
)
