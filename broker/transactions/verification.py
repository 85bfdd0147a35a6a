"""Whether a transactional write may be appended: its partition must be part of the producer's open transaction.

Without this check a write that was delayed on its way could begin a transaction that nobody ends (KIP-890, part 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...protocol.errors import BrokerError, ErrorCode
from ...storage.paths import TopicPartition
from ...storage.producer_state import NO_OFFSET
from ..partition import Partition
from .transaction import ProducerIdentity

if TYPE_CHECKING:
    from ..broker import Broker


def check_partition_added(
    broker: Broker, partition: Partition, transactional_id: str, producer: ProducerIdentity, *, may_abort: bool
) -> None:
    """Refuse a write outside of the transaction; one in which this log has records already needs no question.

    Raises BrokerError: TRANSACTION_ABORTABLE (`may_abort`: the client knows that error) or INVALID_TXN_STATE,
    INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, CONCURRENT_TRANSACTIONS.
    """
    if not broker.config.transaction_partition_verification_enable or _is_in_transaction(partition, producer):
        return
    at = TopicPartition(partition.topic, partition.index)
    try:
        is_added = broker.transactions.holds_partition(transactional_id, producer, at)
    except BrokerError as error:
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        raise
    if not is_added:
        code = ErrorCode.TRANSACTION_ABORTABLE if may_abort else ErrorCode.INVALID_TXN_STATE
        raise BrokerError(code, f"{at.topic}-{at.partition} has not been added to the transaction")


def _is_in_transaction(partition: Partition, producer: ProducerIdentity) -> bool:
    """Of whatever epoch: the log itself refuses an old one."""
    known = partition.log.producers.producers.get(producer.producer_id)
    return known is not None and known.transaction_first_offset != NO_OFFSET
