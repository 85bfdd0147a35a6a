"""The table of routes: which broker of a cluster answers a request, by API.

An API that is not named here is answered by any broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...protocol.apis import AnyApiKey, ApiKey

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""

TO_LEADERS = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.DELETE_RECORDS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_PRODUCERS,
    }
)
"""APIs whose partitions are for the leader of each."""
TO_EVERY_BROKER = frozenset({ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS})
"""APIs of which each broker answers for itself."""
TO_CONTROLLER = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
    }
)
"""APIs that a broker forwards to its controller with KRaft, and that only the controller answers with ZooKeeper."""
TO_ONE_REPLICA = frozenset(
    {
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.UNREGISTER_BROKER,
    }
)
"""APIs that mean one broker, or a session with it. One address for several brokers does not offer them."""


class Keys(NamedTuple):
    """A place of the groups or transactional ids in a request, whose coordinators answer it."""

    key_type: int
    one: str = ""
    """The field with a single key."""
    several: str = ""
    """The list with several keys; where the version has both, a filled list counts."""
    inside: str = ""
    """The field with the key in each entry of the list; empty if the entries are keys."""


TO_COORDINATORS: Mapping[AnyApiKey, Keys] = {
    ApiKey.OFFSET_COMMIT: Keys(GROUP, "group_id"),
    ApiKey.OFFSET_FETCH: Keys(GROUP, "group_id", "groups", "group_id"),
    ApiKey.JOIN_GROUP: Keys(GROUP, "group_id"),
    ApiKey.HEARTBEAT: Keys(GROUP, "group_id"),
    ApiKey.LEAVE_GROUP: Keys(GROUP, "group_id"),
    ApiKey.SYNC_GROUP: Keys(GROUP, "group_id"),
    ApiKey.DESCRIBE_GROUPS: Keys(GROUP, several="groups"),
    ApiKey.DELETE_GROUPS: Keys(GROUP, several="groups_names"),
    ApiKey.OFFSET_DELETE: Keys(GROUP, "group_id"),
    ApiKey.TXN_OFFSET_COMMIT: Keys(GROUP, "group_id"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Keys(GROUP, "group_id"),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Keys(GROUP, several="group_ids"),
    ApiKey.SHARE_GROUP_HEARTBEAT: Keys(GROUP, "group_id"),
    ApiKey.SHARE_GROUP_DESCRIBE: Keys(GROUP, several="group_ids"),
    ApiKey.INIT_PRODUCER_ID: Keys(TRANSACTION, "transactional_id"),
    ApiKey.ADD_PARTITIONS_TO_TXN: Keys(
        TRANSACTION, "v3_and_below_transactional_id", "transactions", "transactional_id"
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Keys(TRANSACTION, "transactional_id"),
    ApiKey.END_TXN: Keys(TRANSACTION, "transactional_id"),
    ApiKey.DESCRIBE_TRANSACTIONS: Keys(TRANSACTION, several="transactional_ids"),
}
"""APIs that the coordinator of a group or of a transactional id answers."""


def keyed_parts(keys: Keys, request: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield each key of a request, with the entry of the list that has it; the entry is None for a single key.

    The key is None for a request without one, such as InitProducerId of an idempotent producer.
    """
    entries = getattr(request, keys.several) if keys.several else None
    if entries:
        yield from ((getattr(entry, keys.inside) if keys.inside else entry, entry) for entry in entries)
    elif keys.one:
        yield getattr(request, keys.one), None
    else:
        yield None, None


ROUTED = TO_LEADERS | TO_COORDINATORS.keys() | TO_EVERY_BROKER | TO_CONTROLLER
"""APIs that are for certain brokers of a cluster."""
