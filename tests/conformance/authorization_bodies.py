"""The bodies of the requests in `authorization_cases.py`, for each version of their APIs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.record import Record

TIME = 1_700_000_000_000
NOBODY = UUID(int=0x77)
"""An id that no topic has."""
TRANSACTIONAL_SINCE = 3


class Place(NamedTuple):
    """A set of names that one client uses; rights are granted only on `topic`, `group` and `txn`."""

    topic: str
    second: str
    """An existing topic on which the client has no right."""
    group: str
    txn: str
    ids: dict[str, UUID]
    """The ids of topics by name."""

    @property
    def missing(self) -> str:
        return f"{self.topic}-missing"

    @property
    def new(self) -> str:
        return f"{self.topic}-new"


def _records(version: int, *, transactional: bool = False) -> bytes:
    if version < 2:
        return v0.build_message_set([Record(0, -1, None, b"v")])
    if version < TRANSACTIONAL_SINCE:
        return v1.build_message_set([Record(0, TIME, None, b"v")])
    if transactional:
        return v2.build_batch(
            [Record(0, TIME, None, b"v")], producer_id=777, producer_epoch=0, base_sequence=0, is_transactional=True
        )
    return v2.build_batch([Record(0, TIME, None, b"v")])


def _names(place: Place) -> list[str]:
    return [place.topic, place.second, place.missing]


def produce(place: Place, version: int, *, transactional: bool = False) -> dict[str, Any]:
    """Return a Produce request for three topics, one of them missing."""
    data = {"partition_data": [{"index": 0, "records": _records(version, transactional=transactional)}]}
    return {
        "transactional_id": place.txn if transactional else None,
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": name, **data} for name in _names(place)],
    }


def fetch(place: Place, version: int, replica: int = -1) -> dict[str, Any]:
    """Return a Fetch of a consumer, or of a follower."""
    partitions = {"partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    if version >= 13:
        ids = [place.ids[place.topic], place.ids[place.second], NOBODY]
        topics = [{"topic_id": topic_id, **partitions} for topic_id in ids]
    else:
        topics = [{"topic": name, **partitions} for name in _names(place)]
    body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10000, "session_epoch": -1, "topics": topics}
    if version >= 15:
        return {**body, "replica_state": {"replica_id": replica, "replica_epoch": -1}}
    return {**body, "replica_id": replica}


def metadata(place: Place, version: int) -> dict[str, Any]:
    """Return a Metadata request by name."""
    body: dict[str, Any] = {"topics": [{"name": name} for name in _names(place)]}
    return {**body, **_operations(version), **({"allow_auto_topic_creation": False} if version >= 4 else {})}


def _operations(version: int) -> dict[str, Any]:
    """Return the fields that request authorized operations."""
    body: dict[str, Any] = {"include_topic_authorized_operations": True} if version >= 8 else {}
    return {**body, "include_cluster_authorized_operations": True} if 8 <= version <= 10 else body


def all_metadata(place: Place, version: int) -> dict[str, Any]:
    """Return a Metadata request for all topics."""
    return {"topics": None if version else [], **_operations(version)}


def metadata_by_id(place: Place, version: int) -> dict[str, Any]:
    """Return a Metadata request by topic id."""
    ids = [place.ids[place.topic], place.ids[place.second], NOBODY]
    return {"topics": [{"name": None, "topic_id": topic_id} for topic_id in ids], **_operations(version)}


def offset_commit(place: Place, version: int) -> dict[str, Any]:
    """Return an OffsetCommit request."""
    partitions = [{"partition_index": 0, "committed_offset": 5}, {"partition_index": 7, "committed_offset": 5}]
    return {"group_id": place.group, "topics": [{"name": name, "partitions": partitions} for name in _names(place)]}


def offset_fetch(place: Place, version: int, *, names: bool = True) -> dict[str, Any]:
    """Return an OffsetFetch request."""
    topics = [{"name": name, "partition_indexes": [0]} for name in _names(place)] if names else None
    if version >= 8:
        return {"groups": [{"group_id": place.group, "topics": topics}]}
    return {"group_id": place.group, "topics": topics}


def find(key_type: int, key: Callable[[Place], str]) -> Callable[[Place, int], dict[str, Any]]:
    """Return a function that returns the body of a FindCoordinator request."""

    def body(place: Place, version: int) -> dict[str, Any]:
        wanted: dict[str, Any] = {"coordinator_keys": [key(place)]} if version >= 4 else {"key": key(place)}
        return {**wanted, "key_type": key_type} if version else wanted

    return body


def join(place: Place, version: int) -> dict[str, Any]:
    """Return a JoinGroup request."""
    return {
        "group_id": place.group,
        "session_timeout_ms": 10000,
        **({"rebalance_timeout_ms": 10000} if version else {}),
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }


def sync(place: Place, version: int) -> dict[str, Any]:
    """Return a SyncGroup request."""
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return {"group_id": place.group, "generation_id": 1, "member_id": "m", **named}


def leave(place: Place, version: int) -> dict[str, Any]:
    """Return a LeaveGroup request."""
    return {"group_id": place.group, **({"members": [{"member_id": "m"}]} if version >= 3 else {"member_id": "m"})}


def create_topics(place: Place, version: int) -> dict[str, Any]:
    """Return a request for a new and an existing topic."""
    new = {"num_partitions": 1, "replication_factor": 1}
    return {"topics": [{"name": name, **new} for name in (place.new, place.second)], "timeout_ms": 5000}


def delete_topics(place: Place, version: int) -> dict[str, Any]:
    """Return a DeleteTopics request by name."""
    if version >= 6:
        return {"topics": [{"name": name} for name in _names(place)], "timeout_ms": 5000}
    return {"topic_names": _names(place), "timeout_ms": 5000}


def delete_by_id(place: Place, version: int) -> dict[str, Any]:
    """Return a DeleteTopics request by topic id."""
    ids = [place.ids[place.topic], place.ids[place.second], NOBODY]
    return {"topics": [{"name": None, "topic_id": topic_id} for topic_id in ids], "timeout_ms": 5000}


def add_partitions(place: Place, version: int, names: tuple[str, ...] = ("topic",)) -> dict[str, Any]:
    """Return an AddPartitionsToTxn request."""
    topics = [{"name": getattr(place, name), "partitions": [0]} for name in names]
    if version >= 4:
        one = {"transactional_id": place.txn, "producer_id": 777, "producer_epoch": 0, "topics": topics}
        return {"transactions": [one]}
    return {
        "v3_and_below_transactional_id": place.txn,
        "v3_and_below_producer_id": 777,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": topics,
    }


def txn_offset_commit(place: Place, version: int) -> dict[str, Any]:
    """Return a TxnOffsetCommit request."""
    partitions = [{"partition_index": 0, "committed_offset": 5}]
    return {
        "transactional_id": place.txn,
        "group_id": place.group,
        "producer_id": 777,
        "producer_epoch": 0,
        "topics": [{"name": name, "partitions": partitions} for name in _names(place)],
    }


def markers(place: Place, version: int) -> dict[str, Any]:
    """Return a WriteTxnMarkers request."""
    topics = [{"name": name, "partition_indexes": [0]} for name in (place.topic, place.missing)]
    return {"markers": [{"producer_id": 777, "producer_epoch": 0, "transaction_result": True, "topics": topics}]}


def acl_filter(place: Place, version: int) -> dict[str, Any]:
    """Return a DescribeAcls request that matches nothing."""
    exact = {"resource_type_filter": 2, "resource_name_filter": place.missing, "operation": 3, "permission_type": 3}
    return {**exact, "principal_filter": "User:nobody"}


def create_acls(place: Place, version: int) -> dict[str, Any]:
    """Return a request for a valid and an invalid ACL."""
    acl = {"resource_type": 2, "resource_name": place.missing, "principal": "User:nobody", "host": "*"}
    invalid = {**acl, "resource_type": 4, "operation": 3, "permission_type": 3}
    return {"creations": [{**acl, "operation": 3, "permission_type": 3}, invalid]}


CONFIG_RESOURCES = ((2, "topic"), (2, "second"), (2, "missing"), (4, ""), (16, "metrics"))


def _config_resources(place: Place) -> list[tuple[int, str]]:
    """Return the type and name of each resource with configurations."""
    return [(kind, getattr(place, name) if kind == 2 else name) for kind, name in CONFIG_RESOURCES]


def describe_configs(place: Place, version: int) -> dict[str, Any]:
    """Return a DescribeConfigs request."""
    keys = {"configuration_keys": ["retention.ms"]}
    resources = [{"resource_type": kind, "resource_name": name, **keys} for kind, name in _config_resources(place)]
    return {"resources": resources}


def alter_configs(place: Place, version: int, *, incremental: bool = False) -> dict[str, Any]:
    """Return a request that only validates changes."""
    entries = {2: ("retention.ms", "600000"), 4: ("log.retention.ms", "600000"), 16: ("interval.ms", "5000")}
    operation = {"config_operation": 0} if incremental else {}
    return {
        "validate_only": True,
        "resources": [
            {
                "resource_type": kind,
                "resource_name": name,
                "configs": [{"name": entries[kind][0], "value": entries[kind][1], **operation}],
            }
            for kind, name in _config_resources(place)
        ],
    }


def partitions_of(place: Place, field_name: str, names: tuple[str, ...] = ("topic", "second", "missing")) -> list[Any]:
    """Return entries of topics with one partition each."""
    return [{field_name: getattr(place, name), "partitions": [0]} for name in names]


def consumer_heartbeat(place: Place, version: int) -> dict[str, Any]:
    """Return the heartbeat of a new member."""
    return {
        "group_id": place.group,
        "member_id": "" if version == 0 else "AAAAAAAAAAAAAAAAAAAAAQ",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10000,
        "subscribed_topic_names": [place.topic],
        "topic_partitions": [],
    }
