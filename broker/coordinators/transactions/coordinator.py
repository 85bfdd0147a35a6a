"""The transaction coordinator: decides, writes the decision, then executes it (Kafka `TransactionCoordinator`).

Every method completes in one step of the event loop, so no two transitions of an id can overlap. The only intermediate
state that another request can see is a prepared transaction with missing markers; `resume` retries these markers,
called by the maintenance task and after a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from ....protocol.errors import BrokerError, DecodeError, ErrorCode
from ....protocol.topic_partition import TopicPartition
from ....storage.clock import Clock
from ..internal_log.coordinator_log import Replayed, ReplayedMarker
from .transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PREPARED, ProducerIdentity, Transaction, TransactionState
from .transaction_log import key_bytes, read_key, read_value, value_bytes

logger = logging.getLogger(__name__)


class StateLog(Protocol):
    """A log of the partitions of `__transaction_state` (a `CoordinatorLog`)."""

    def partition_of(self, key: str) -> int:
        """Return the partition that holds a transactional id."""

    def append(self, index: int, records: Collection[tuple[bytes, bytes | None]]) -> int:
        """Append keys and values (None: a tombstone); return the offset of the first. Raises BrokerError."""


class Markers(Protocol):
    """A writer of the markers that end a transaction in its partitions."""

    def write(self, transaction: Transaction) -> bool:
        """Write a marker into each partition of a prepared transaction; return whether all are written."""


class CoordinatedPartitions(Protocol):
    """A view of the partitions of `__transaction_state` that this broker coordinates (`LedPartitions`)."""

    def check(self, key: str) -> None:
        """Raise BrokerError for a transactional id that is not coordinated here, or not loaded completely."""

    def serves(self, key: str) -> bool:
        """Return whether a transactional id is coordinated here and completely loaded."""


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    """A record of the coordinator's configuration, in milliseconds."""

    max_timeout_ms: int = 900_000
    """``transaction.max.timeout.ms``"""
    expiration_ms: int = 604_800_000
    """``transactional.id.expiration.ms``"""


class TransactionCoordinator:
    """A coordinator of the transactional ids of this broker."""

    def __init__(
        self,
        log: StateLog,
        markers: Markers,
        next_producer_id: Callable[[], int],
        clock: Clock,
        settings: CoordinatorSettings,
        partitions: CoordinatedPartitions,
    ) -> None:
        """Use ``partitions`` to know which ids are loaded: what `replay` has seen of any other may be outdated."""
        self._partitions = partitions
        self._log = log
        self._markers = markers
        self._next_producer_id = next_producer_id
        self._clock = clock
        self._settings = settings
        self._transactions: dict[str, Transaction] = {}

    def replay(self, records: Iterable[Replayed]) -> None:
        """Replay the records of `__transaction_state`, oldest first; call `resume` after the last one."""
        for record in records:
            if isinstance(record, ReplayedMarker):
                continue
            try:
                transactional_id = read_key(record.key)
                if transactional_id is None:
                    continue
                if record.value is None:
                    self._forget(transactional_id)
                else:
                    self._transactions[transactional_id] = read_value(transactional_id, record.value)
            except DecodeError as error:
                logger.warning("skipped a record of __transaction_state that cannot be read: %s", error)

    def forget_partition(self, index: int) -> None:
        """Drop the transactional ids of a partition that another broker leads or that is loaded again."""
        for transactional_id in [known for known in self._transactions if self._log.partition_of(known) == index]:
            self._forget(transactional_id)

    def _forget(self, transactional_id: str) -> None:
        self._transactions.pop(transactional_id, None)

    def markers_written(self, prepared: Transaction) -> None:
        """Complete a transaction whose markers `Markers.write` could not write at once and that has all of them now."""
        if self._transactions.get(prepared.transactional_id) == prepared and self._is_loaded(prepared):
            self._store(prepared.completed(self._clock.now_ms()))

    def resume(self) -> None:
        """Write the markers that are missing after a restart or a failed attempt."""
        self._maintain(lambda transaction: transaction.state in PREPARED, self._finish)

    def _maintain(self, needs: Callable[[Transaction], bool], work: Callable[[Transaction], None]) -> None:
        """Do ``work`` for each loaded transaction that needs it; where that fails, it is tried again the next time.

        One partition that takes no records, which `CoordinatorLog` reports, must not keep the others waiting.
        """
        for transaction in list(self._transactions.values()):
            if needs(transaction) and self._is_loaded(transaction):
                try:
                    work(transaction)
                except BrokerError as error:
                    logger.debug("transaction %s is left as it is: %s", transaction.transactional_id, error)

    def _is_loaded(self, transaction: Transaction) -> bool:
        return self._partitions.serves(transaction.transactional_id)

    # InitProducerId

    def producer_ids(self) -> list[int]:
        """Return the ids of the producers that have transactional ids."""
        return [transaction.producer_id for transaction in self._transactions.values()]

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None
    ) -> ProducerIdentity:
        """Start a producer session: fence the previous one, and abort its open transaction.

        Raises BrokerError: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, and CONCURRENT_TRANSACTIONS
        after an abort: the client retries and then gets its epoch.
        """
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise BrokerError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self._partitions.check(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            producer_id = self._next_producer_id()
            transaction = Transaction(transactional_id=transactional_id, producer_id=producer_id, timeout_ms=timeout_ms)
        if expected is not None and not transaction.accepts_as_predecessor(expected):
            raise BrokerError(ErrorCode.PRODUCER_FENCED)
        transaction.check_not_prepared()
        if transaction.state is TransactionState.ONGOING:
            self._end(transaction.fenced(), commit=False)
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)
        renewed = self._next_session(transaction, timeout_ms, expected)
        self._store(renewed)
        return renewed.identity

    def _next_session(
        self, transaction: Transaction, timeout_ms: int, expected: ProducerIdentity | None
    ) -> Transaction:
        now_ms = self._clock.now_ms()
        is_own_epoch = expected is None or expected.epoch == transaction.producer_epoch
        if transaction.identity.is_exhausted and is_own_epoch:
            return transaction.with_new_producer_id(
                self._next_producer_id(), is_resumed=expected is not None, timeout_ms=timeout_ms, now_ms=now_ms
            )
        return transaction.with_next_epoch(None if expected is None else expected.epoch, timeout_ms, now_ms)

    # AddPartitionsToTxn, AddOffsetsToTxn, and verification by Produce

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        *,
        is_v2: bool = False,
    ) -> None:
        """Add ``partitions`` to the open transaction, or open one; ``is_v2`` if a write of transactions V2 adds them.

        Raises BrokerError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS.
        """
        transaction = self._of_producer(transactional_id, producer)
        transaction.check_not_prepared()
        added = frozenset(partitions)
        if transaction.state is not TransactionState.ONGOING or not added <= transaction.partitions:
            self._store(transaction.with_partitions(added, self._clock.now_ms(), is_v2=is_v2))

    def holds_partition(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> bool:
        """Return whether ``partition`` is in the producer's open transaction (KIP-890, the check before an append).

        Raises BrokerError as `add_partitions` does.
        """
        transaction = self._of_producer(transactional_id, producer)
        transaction.check_not_prepared()
        if partition in transaction.partitions:
            return True
        self._confirm(transaction)
        return False

    # EndTxn

    def end(self, transactional_id: str, producer: ProducerIdentity, *, commit: bool) -> None:
        """Commit or abort the open transaction; a repeated request for the same end is no error.

        Raises BrokerError: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE, and
        CONCURRENT_TRANSACTIONS while markers of the same end are still missing.
        """
        transaction = self._of_producer(transactional_id, producer)
        if transaction.state is TransactionState.ONGOING:
            self._end(transaction, commit=commit)
        else:
            transaction.check_same_end(commit=commit)
            self._confirm(transaction)

    def end_v2(self, transactional_id: str, producer: ProducerIdentity, *, commit: bool) -> ProducerIdentity:
        """Commit or abort as EndTxn v5 does (KIP-890); return the producer id and epoch of the next transaction.

        A retry after a lost answer gets the same answer. A producer may abort a transaction without partitions.
        Raises BrokerError as `end` does.
        """
        transaction = self._known(transactional_id)
        if transaction.was_ended_by(producer):
            transaction.check_same_end(commit=commit)
            return transaction.identity
        transaction.check_producer(producer)
        transaction.check_not_prepared()
        if commit and transaction.state is not TransactionState.ONGOING:
            raise BrokerError(ErrorCode.INVALID_TXN_STATE)
        next_producer_id = self._next_producer_id() if producer.is_exhausted else NO_PRODUCER_ID
        now_ms = self._clock.now_ms()
        prepared = transaction.prepared_v2(commit=commit, now_ms=now_ms, next_producer_id=next_producer_id)
        self._complete(prepared)
        return prepared.completed(now_ms).identity

    def _end(self, transaction: Transaction, *, commit: bool) -> None:
        self._complete(transaction.prepared(commit=commit, now_ms=self._clock.now_ms()))

    def _complete(self, prepared: Transaction) -> None:
        self._store(prepared)
        self._finish(prepared)

    def _finish(self, prepared: Transaction) -> None:
        if self._markers.write(prepared):
            self._store(prepared.completed(self._clock.now_ms()))

    # time

    def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their timeout, and fence their producers."""
        now_ms = self._clock.now_ms()

        def abort(transaction: Transaction) -> None:
            logger.info("transaction %s timed out and is aborted", transaction.transactional_id)
            self._end(transaction.fenced(), commit=False)

        self._maintain(lambda transaction: transaction.has_timed_out(now_ms), abort)

    def forget_expired(self) -> None:
        """Delete transactional ids that were not used for ``transactional.id.expiration.ms``."""
        now_ms, expiration_ms = self._clock.now_ms(), self._settings.expiration_ms

        def delete(transaction: Transaction) -> None:
            transactional_id = transaction.transactional_id
            self._log.append(self._log.partition_of(transactional_id), [(key_bytes(transactional_id), None)])
            self._forget(transactional_id)

        self._maintain(lambda transaction: transaction.has_expired(now_ms, expiration_ms), delete)

    # DescribeTransactions, ListTransactions

    def describe(self, transactional_id: str) -> Transaction:
        """Return one transaction. Raises BrokerError INVALID_REQUEST or TRANSACTIONAL_ID_NOT_FOUND."""
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        self._partitions.check(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise BrokerError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    def _of_producer(self, transactional_id: str, producer: ProducerIdentity) -> Transaction:
        transaction = self._known(transactional_id)
        transaction.check_producer(producer)
        return transaction

    def _known(self, transactional_id: str) -> Transaction:
        if not transactional_id:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        self._partitions.check(transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None or transaction.producer_epoch == NO_PRODUCER_EPOCH:
            raise BrokerError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _confirm(self, transaction: Transaction) -> None:
        """Write the present state once more, so that the answer waits until it is replicated.

        A replaced coordinator that has not learned of its replacement (it was paused, or disconnected) holds an
        outdated state: it would take a commit for a retry of the previous transaction's commit. Its write is never
        replicated, so it cannot answer. Kafka 3.9 trusts its state.
        """
        self._store(transaction)

    def _store(self, transaction: Transaction) -> None:
        transactional_id = transaction.transactional_id
        record = (key_bytes(transactional_id), value_bytes(transaction))
        self._log.append(self._log.partition_of(transactional_id), [record])
        self._transactions[transactional_id] = transaction
