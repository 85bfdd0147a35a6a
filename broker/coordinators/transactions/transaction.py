"""A transactional id as an immutable value: its producer, its state, and the transitions between states.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing ...
                    \\-> PrepareAbort  -> CompleteAbort  -> Ongoing ...

A transition returns a new `Transaction`; the old one stays valid until the new one is in the log (Kafka
`TransactionMetadata`, whose `prepare...` methods have counterparts here).

If the producer uses transactions V2 (KIP-890), the transition to Prepare... also raises the epoch: the markers have an
epoch with which no client has written, so a delayed write cannot become part of the next transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP = -1
LARGEST_EPOCH = 0x7FFF


class TransactionState(IntEnum):
    """A state of a transaction, with its number in `__transaction_state` (Kafka `TransactionState`)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The name in DescribeTransactions and ListTransactions, such as ``PrepareCommit``."""
        return self.name.title().replace("_", "")


STATE_NAMED = {state.kafka_name: state for state in TransactionState}
COMMITTED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})
ABORTED = frozenset({TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT})
PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
AT_REST = frozenset({TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the only epoch left is the one reserved for fencing (Kafka `isEpochExhausted`)."""
        return self.epoch >= LARGEST_EPOCH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The coordinator's state of a transactional id. Times are milliseconds since the epoch, -1 for none."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump that a producer requested with its epoch: a retry gets the same answer."""
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_timestamp: int = NO_TIMESTAMP
    last_update_timestamp: int = NO_TIMESTAMP
    is_v2: bool = False
    """Whether the producer uses transactions V2: each transaction has its own epoch."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id of the next transaction, if the epochs of the present id are exhausted."""

    @property
    def identity(self) -> ProducerIdentity:
        """The producer that may write in this transaction."""
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def commits(self) -> bool:
        """Whether a prepared transaction ends in a commit."""
        return self.state is TransactionState.PREPARE_COMMIT

    def has_timed_out(self, now_ms: int) -> bool:
        """Return whether the transaction is open for longer than its timeout."""
        return self.state is TransactionState.ONGOING and self.start_timestamp + self.timeout_ms < now_ms

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the id was unused for ``transactional.id.expiration.ms``."""
        return self.state in AT_REST and self.last_update_timestamp + expiration_ms <= now_ms

    def check_producer(self, producer: ProducerIdentity) -> None:
        """Raise INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED unless ``producer`` is the present producer."""
        if producer.producer_id != self.producer_id:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if producer.epoch != self.producer_epoch:
            raise BrokerError(ErrorCode.PRODUCER_FENCED)

    def check_not_prepared(self) -> None:
        """Raise CONCURRENT_TRANSACTIONS while the markers of the last transaction are being written."""
        if self.state in PREPARED:
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def check_same_end(self, *, commit: bool) -> None:
        """Check a repeated EndTxn: raise INVALID_TXN_STATE if the transaction ended differently.

        Raises CONCURRENT_TRANSACTIONS while markers are still missing.
        """
        ends = COMMITTED if commit else ABORTED
        if self.state not in ends:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)
        self.check_not_prepared()

    def was_ended_by(self, producer: ProducerIdentity) -> bool:
        """Return whether ``producer`` ended the last transaction, of V2, and retries after a lost answer.

        Its epoch is then the one before the present epoch, or the last epoch of the previous producer id.
        """
        if not self.is_v2 or self.state not in COMMITTED | ABORTED:
            return False
        if producer.producer_id == self.producer_id:
            return producer.epoch == self.producer_epoch - 1
        return producer == (self.previous_producer_id, LARGEST_EPOCH - 1) and self.producer_epoch == 0

    def accepts_as_predecessor(self, expected: ProducerIdentity) -> bool:
        """Return whether InitProducerId may continue from ``expected`` (KIP-360).

        It may if the transactional id is new, if the producer id is the present one (its epoch is checked next), or if
        it is the previous one with exhausted epochs: then the answer to the rotation was lost.
        """
        return (
            self.producer_epoch == NO_PRODUCER_EPOCH
            or expected.producer_id == self.producer_id
            or (expected.producer_id == self.previous_producer_id and expected.is_exhausted)
        )

    def with_next_epoch(self, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> Transaction:
        """Return a new producer session with the next epoch, or with the present epoch if the request is a retry.

        Raises PRODUCER_FENCED if ``expected_epoch`` is neither the present epoch nor the one before the last bump.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch == NO_PRODUCER_EPOCH or expected_epoch == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise BrokerError(ErrorCode.PRODUCER_FENCED)
        return self._at_rest(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(self, producer_id: int, *, is_resumed: bool, timeout_ms: int, now_ms: int) -> Transaction:
        """Return a new producer session under a new producer id, as the old id's epochs are exhausted."""
        last_epoch = self.producer_epoch if is_resumed else NO_PRODUCER_EPOCH
        rotated = self._at_rest(producer_id, 0, last_epoch, timeout_ms, now_ms)
        return replace(rotated, previous_producer_id=self.producer_id)

    def _at_rest(self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        return replace(
            self,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            start_timestamp=NO_TIMESTAMP,
            last_update_timestamp=now_ms,
        )

    def with_partitions(self, partitions: frozenset[TopicPartition], now_ms: int, *, is_v2: bool) -> Transaction:
        """Return the open transaction with ``partitions`` added; its timeout starts with the first ones."""
        is_open = self.state is TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=(self.partitions if is_open else frozenset()) | partitions,
            start_timestamp=self.start_timestamp if is_open else now_ms,
            last_update_timestamp=now_ms,
            is_v2=is_v2,
        )

    def fenced(self) -> Transaction:
        """Return the transaction with an epoch that no client has, so that its producer can write no more.

        It ends as a V1 transaction, so that its producer is not taken for the one that ended it.
        """
        return replace(self, producer_epoch=self.producer_epoch + 1, last_producer_epoch=NO_PRODUCER_EPOCH, is_v2=False)

    def prepared(self, *, commit: bool, now_ms: int) -> Transaction:
        """Return the transaction as decided: its end cannot change any more."""
        state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        return replace(self, state=state, last_update_timestamp=now_ms)

    def prepared_v2(self, *, commit: bool, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> Transaction:
        """Return the transaction as decided, with the next epoch; ``next_producer_id`` if that is the id's last epoch.

        A transaction without partitions, which V2 can abort, starts and ends now.
        """
        is_open = self.state is TransactionState.ONGOING
        return replace(
            self.prepared(commit=commit, now_ms=now_ms),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            start_timestamp=self.start_timestamp if is_open else now_ms,
            is_v2=True,
            next_producer_id=next_producer_id,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the transaction as ended: every partition has its marker."""
        state = TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT
        ended = replace(self, state=state, partitions=frozenset(), last_update_timestamp=now_ms)
        if self.next_producer_id == NO_PRODUCER_ID:
            return ended
        return replace(
            ended,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
        )
