"""Exactly-once from topic to topic: a transaction that also commits the offsets of a consumer (KIP-98, KIP-447)."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.topic_partition import AnyTopicPartition
from .committer import Committer
from .fetcher import Fetcher
from .subscription import DoubtfulOffsets, PartitionPosition, Subscription

if TYPE_CHECKING:
    from ..producer.producer import Producer

logger = logging.getLogger(__name__)

PUT_OUT_CODES = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Refusals of offsets that mean that the group may have assigned the partitions to other members."""


@asynccontextmanager
async def consumed_transaction(
    producer: Producer, subscription: Subscription, fetcher: Fetcher, committer: Committer
) -> AsyncIterator[None]:
    """Enclose the processing of the consumer's last records in a transaction; see `Consumer.transaction`."""
    in_hand = _InHand(subscription)
    are_offsets_sent = False
    refusal: BrokerError | None = None
    try:
        async with producer.transaction():
            yield
            try:
                await producer.send_offsets_to_transaction(committer.group_metadata(), in_hand.ends())
            except BrokerError as error:
                refusal = error
                raise
            are_offsets_sent = True
    except BaseException as error:
        # Once the offsets are part of the transaction, an error does not tell whether the transaction was committed.
        in_hand.take_back(subscription, fetcher, is_outcome_known=not are_offsets_sent)
        if error is not refusal or refusal.code not in PUT_OUT_CODES:
            raise
        logger.warning("the group has rebalanced meanwhile, so the transaction is aborted: %s", refusal)


class _InHand:
    """The offsets of the records that the consumer's last poll returned."""

    def __init__(self, subscription: Subscription) -> None:
        self._ranges: dict[AnyTopicPartition, tuple[PartitionPosition, int, int]] = {
            place: (position, position.in_hand, position.offset)
            for place, position in subscription.positions.items()
            if position.in_hand is not None and position.offset is not None
        }

    def ends(self) -> dict[AnyTopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return {place: end for place, (_, _, end) in self._ranges.items()}

    def take_back(self, subscription: Subscription, fetcher: Fetcher, *, is_outcome_known: bool) -> None:
        """Return these records again at the next poll; with an unknown outcome, only if their offsets are not
        committed.
        """
        for place, (position, start, end) in self._ranges.items():
            if subscription.positions.get(place) is not position:
                # The partition was revoked, or assigned again with a position that was found since.
                continue
            fetcher.forget(place)
            if is_outcome_known:
                position.seek(start)
            else:
                position.seek(None)
                position.on_unknown_outcome = DoubtfulOffsets(start, end)
        fetcher.wake()
