"""Verification of transactional writes: the partition must be in the transaction before anything is appended.

In transactions V2 a write adds its partition by itself. Before, the client had to add it first, and a write that was
delayed in the network could begin a transaction that nothing ends (KIP-890).
"""

from __future__ import annotations

from enum import Enum, auto

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.internal_topics import TRANSACTION_STATE
from ...protocol.topic_partition import TopicPartition
from ...storage.producers.producer_state import NO_OFFSET
from ..coordinators.internal_log.topic_partitions import InternalTopicPartitions
from ..coordinators.internal_log.unreplicated_writes import InternalKey, partitions_led_here, replication_of
from ..coordinators.transactions.coordinator import TransactionCoordinator
from ..coordinators.transactions.transaction import ProducerIdentity
from ..replicas.partition import Partition
from .contract import RequestContext
from .services import Services


class TransactionSupport(Enum):
    """A level of transaction support in a client's requests (Kafka `TransactionSupportedOperation`)."""

    BEFORE_KIP_890 = auto()
    TAKES_ABORTABLE = auto()
    """The client knows TRANSACTION_ABORTABLE."""
    V2 = auto()
    """The client leaves it to the broker to add partitions to the transaction."""


def transaction_support(context: RequestContext) -> TransactionSupport:
    """Return the transaction support of the client that sent a request, by the version of the request."""
    api, version = context.api, context.api_version
    if api.transactions_v2_since is not None and version >= api.transactions_v2_since:
        return TransactionSupport.V2
    if api.abortable_since is not None and version >= api.abortable_since:
        return TransactionSupport.TAKES_ABORTABLE
    return TransactionSupport.BEFORE_KIP_890


def must_join(
    services: Services, partition: Partition, producer: ProducerIdentity, support: TransactionSupport
) -> bool:
    """Return whether a write needs `join_transaction`, which this log's records of the transaction make unnecessary."""
    is_v2 = support is TransactionSupport.V2
    if _is_in_transaction(partition, producer, is_v2=is_v2):
        return False
    return is_v2 or services.config.transaction_partition_verification_enable


async def join_transaction(
    services: Services,
    partition: Partition,
    transactional_id: str,
    producer: ProducerIdentity,
    support: TransactionSupport,
) -> None:
    """Add a write to its transaction, or refuse it; skip the check if this log has records of the transaction.

    Raises BrokerError: TRANSACTION_ABORTABLE, or INVALID_TXN_STATE for clients that do not know that code,
    INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS, and if the coordinator cannot answer
    now NOT_ENOUGH_REPLICAS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
    """
    is_v2 = support is TransactionSupport.V2
    if not must_join(services, partition, producer, support):
        return
    at = TopicPartition(partition.topic, partition.index)
    remote = services.node.remote_transactions
    try:
        if remote is not None and remote.is_remote(transactional_id):
            is_added = await remote.join(transactional_id, producer, at, verify_only=not is_v2)
        else:
            is_added = _join_here(services.transactions, transactional_id, producer, at, is_v2=is_v2)
            # If this registration were lost after the write, nothing would end the transaction in this log.
            await _wait_for_replicas(services, transactional_id)
    except BrokerError as error:
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        raise
    if not is_added:
        is_known = support is TransactionSupport.TAKES_ABORTABLE
        code = ErrorCode.TRANSACTION_ABORTABLE if is_known else ErrorCode.INVALID_TXN_STATE
        raise BrokerError(code, f"{at.topic}-{at.partition} has not been added to the transaction")


async def _wait_for_replicas(services: Services, transactional_id: str) -> None:
    """Wait until the transaction's state is replicated. Raises NotReplicatedError."""
    topics = InternalTopicPartitions(services.metadata, services.partitions)
    led = partitions_led_here([InternalKey(TRANSACTION_STATE, transactional_id)], topics)
    replication = replication_of(led, services.config.offsets_commit_timeout_ms / 1000)
    if replication is not None:
        await replication.wait()


def _join_here(
    coordinator: TransactionCoordinator,
    transactional_id: str,
    producer: ProducerIdentity,
    at: TopicPartition,
    *,
    is_v2: bool,
) -> bool:
    if not is_v2:
        return coordinator.holds_partition(transactional_id, producer, at)
    coordinator.add_partitions(transactional_id, producer, [at], is_v2=True)
    return True


def _is_in_transaction(partition: Partition, producer: ProducerIdentity, *, is_v2: bool) -> bool:
    """Return whether the log has an open transaction of the producer, of any epoch: the log itself refuses old epochs.

    In V2 a newer epoch is the next transaction, which must not begin before the marker of the last one is written here.
    """
    known = partition.log.producers.producers.get(producer.producer_id)
    if known is None or known.transaction_first_offset == NO_OFFSET:
        return False
    return not is_v2 or known.epoch == producer.epoch
