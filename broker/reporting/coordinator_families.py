"""Groups and transactions that this broker coordinates, and the requests that wait: Kafka's names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..api.services import Services
from ..coordinators.transactions.transaction import TransactionState
from ..monitoring.metrics import NO_LABELS, Family

GROUP_STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
"""States of classic groups that `GroupMetadataManager` counts one by one."""
GROUP_TYPES = ("classic", "consumer")
OPEN = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def coordinator_families(services: Services) -> Iterator[Family]:
    """Yield `kafka.coordinator.group`, `group-coordinator-metrics` and `transaction-coordinator-metrics`."""
    _, groups = services.groups.list((), ())
    states = Counter(group.group_state for group in groups)
    prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    yield Family(prefix, [(NO_LABELS, len(groups))])
    for state in GROUP_STATES:
        yield Family(f"{prefix}{state.lower()}", [(NO_LABELS, states[state])])
    types = Counter(group.group_type for group in groups)
    yield Family(
        "kafka_server_group_coordinator_metrics_group_count",
        [({"protocol": name}, types[name]) for name in GROUP_TYPES],
    )
    transactions = list(services.transactions)
    prefix = "kafka_server_transaction_coordinator_metrics"
    yield Family(f"{prefix}_transactional_id_count", [(NO_LABELS, len(transactions))])
    open_count = sum(transaction.state in OPEN for transaction in transactions)
    yield Family(f"{prefix}_active_transaction_count", [(NO_LABELS, open_count)])


def waiting_families(services: Services) -> Iterator[Family]:
    """Yield the delayed requests (`DelayedOperationPurgatory`) and the fetch sessions (`FetchSessionCache`)."""
    delayed = {
        "Fetch": len(services.purgatory),
        "Produce": sum(partition.unreplicated_count for partition in services.partitions),
    }
    sizes = [({"delayedOperation": name}, count) for name, count in delayed.items()]
    yield Family("kafka_server_delayedoperationpurgatory_purgatorysize", sizes)
    sessions = services.fetch_sessions
    for name, value in (
        ("numincrementalfetchsessions", len(sessions)),
        ("numincrementalfetchpartitionscached", sessions.partition_count),
        ("incrementalfetchsessionevictions_total", sessions.eviction_count),
    ):
        yield Family(f"kafka_server_fetchsessioncache_{name}", [(NO_LABELS, value)])
