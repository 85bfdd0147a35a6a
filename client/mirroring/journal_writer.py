"""The writer to any Kafka, which numbers the records itself; `journal.py` keeps a crash from losing or doubling
records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import trio

from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.topic_partition import AnyTopicPartition
from ..admin import Admin
from ..consumer.fetched_partition import FetchedBatches
from ..producer.appending_cy import Delivery
from ..producer.batch_sender_cy import FIRST_VERSION_WITH_FORMAT_V2
from ..producer.producer import Producer
from ..producer.sender import LOST_SEQUENCE_CODES
from ..wire.group_offsets import CommittedOffset
from ..wire.offset_lookup import LATEST
from .errors import MirrorError
from .journal import Journal, Position, Step, steps_that_fit
from .outgoing import Outgoing, TargetRules, renumbered

NO_PRODUCER = (-1, -1)
SECONDS_BETWEEN_REMINDERS = 3_600.0


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch in flight: its expected target offset, and the position after it."""

    delivery: Delivery
    offset: int
    after: Position


class JournalWriter:
    """A `MirrorWriter` with journals in the group `group_id`; with `appends` it may start behind other records.

    `distrusted` are partitions whose sequence numbers the target refuses because it has lost their state: they get a
    new producer id. This set outlives the writer.
    """

    def __init__(
        self, producer: Producer, admin: Admin, group_id: str, distrusted: set[AnyTopicPartition], *, appends: bool
    ) -> None:
        self._producer = producer
        self._admin = admin
        self._group_id = group_id
        self._at: dict[AnyTopicPartition, Position] = {}
        self._unsettled: set[AnyTopicPartition] = set()
        self._identity = NO_PRODUCER
        self._distrusted = distrusted
        self._appends = appends
        self._all_settled_at = trio.current_time()
        self._max_batch_bytes: dict[str, int] = {}
        self._takes_old_formats: bool | None = None

    def topic_ready(self, topic: str, max_batch_bytes: int) -> None:
        """Prepare for a topic that exists at the target, see `MirrorWriter.topic_ready`."""
        self._max_batch_bytes[topic] = max_batch_bytes

    async def positions(self, places: Sequence[AnyTopicPartition]) -> dict[AnyTopicPartition, int | None]:
        """Return the next offsets to copy, see `MirrorWriter.positions`.

        A partition without a journal must be empty at the target, unless `appends` is set.
        """
        committed = await self._admin.committed_offsets(self._group_id, places)
        ends = await self._admin.list_offsets(dict.fromkeys(places, LATEST))
        found: dict[AnyTopicPartition, int | None] = {}
        for place in places:
            entry = ends[place]
            end = 0 if entry is None else entry.offset
            self._at.pop(place, None)
            found[place] = None
            if place in committed:
                try:
                    position = Journal.read(committed[place]).resumed(end)
                except MirrorError as error:
                    raise MirrorError(f"{place[0]}-{place[1]}: {error}") from error
                if place in self._distrusted:
                    position = await self._with_new_identity(position)
                self._at[place] = position
                found[place] = position.source_offset
            elif end and not self._appends:
                raise MirrorError(
                    f"{place[0]}-{place[1]} of the target has records, and group {self._group_id} has no offset for it:"
                    " another client has written the records, or the offsets of the mirror's group were deleted"
                )
            else:
                self._at[place] = await self._with_new_identity(Position(-1, end, -1, -1, 0))
        self._distrusted.difference_update(places)
        return found

    async def write(self, fetched: Sequence[FetchedBatches]) -> int:
        """Append batches, see `MirrorWriter.write`."""
        waiting: dict[AnyTopicPartition, deque[Outgoing]] = {}
        for item in fetched:
            place = (item.topic, item.partition)
            at = self._at[place]
            if at.source_offset != item.first_offset:
                # The first batches of the partition, or the source has deleted the offsets in between.
                self._at[place] = replace(at, source_offset=item.first_offset)
            self._unsettled.add(place)
            outgoing = deque(renumbered(item.batches, item.first_offset, await self._rules(item.topic), item.tag_runs))
            if outgoing:
                waiting[place] = outgoing
        count = 0
        while waiting:
            count += await self._send_round(waiting)
            waiting = {place: rest for place, rest in waiting.items() if rest}
        for item in fetched:
            place = (item.topic, item.partition)
            self._at[place] = replace(self._at[place], source_offset=item.next_offset)
        return count

    async def settle(self) -> None:
        """Commit the position of each partition, see `MirrorWriter.settle`: the group has the next offsets to copy.

        The positions of idle partitions are committed again at intervals: brokers delete offsets after
        `offsets.retention.minutes`.
        """
        now = trio.current_time()
        if now - self._all_settled_at > SECONDS_BETWEEN_REMINDERS:
            self._all_settled_at = now
            self._unsettled |= {place for place, at in self._at.items() if at.source_offset >= 0}
        journals = {place: Journal(self._at[place]).committed() for place in self._unsettled}
        if journals:
            await self._commit(journals)
            self._unsettled.clear()

    # --- one round: the journal, then its batches ---

    async def _send_round(self, waiting: dict[AnyTopicPartition, deque[Outgoing]]) -> int:
        plans: dict[AnyTopicPartition, list[tuple[Outgoing, Step]]] = {}
        for place, queue in waiting.items():
            plans[place] = steps_that_fit(self._at[place], queue)
            for _ in plans[place]:
                queue.popleft()
        await self._commit(
            {
                place: Journal(self._at[place], tuple(step for _, step in plan)).committed()
                for place, plan in plans.items()
            }
        )
        sent = {place: [await self._send(place, entry) for entry in plan] for place, plan in plans.items()}
        count = 0
        for place, batches in sent.items():
            await self._arrived(place, batches)
            count += sum(step.record_count for _, step in plans[place])
        return count

    async def _send(self, place: AnyTopicPartition, entry: tuple[Outgoing, Step]) -> _Sent:
        """Pass a batch to the producer; until the round has ended, `_at` is the position after all batches sent, not
        all confirmed.
        """
        outgoing, step = entry
        at = self._at[place]
        payload = outgoing.with_producer(at.producer_id, at.producer_epoch, at.sequence)
        delivery = await self._producer.send_batch(*place, payload, keeps_producer=True)
        self._at[place] = after = at.after(step)
        return _Sent(delivery, at.target_offset, after)

    async def _arrived(self, place: AnyTopicPartition, batches: Sequence[_Sent]) -> None:
        for sent in batches:
            try:
                metadata = await sent.delivery
            except BrokerError as error:
                if error.code in LOST_SEQUENCE_CODES:
                    self._distrusted.add(place)
                raise
            # A batch that the target had already may be acknowledged without its offset.
            if metadata.offset not in (sent.offset, -1):
                raise MirrorError(
                    f"another client writes to {place[0]}-{place[1]} of the target: "
                    f"a batch for offset {sent.offset} was stored at offset {metadata.offset}"
                )

    async def _commit(self, journals: Mapping[AnyTopicPartition, CommittedOffset]) -> None:
        await self._admin.alter_group_offsets(self._group_id, journals)

    # --- the target ---

    async def _rules(self, topic: str) -> TargetRules:
        if self._takes_old_formats is None:
            self._takes_old_formats = await self._admin.speaks(ApiKey.PRODUCE, newest=FIRST_VERSION_WITH_FORMAT_V2 - 1)
        return TargetRules(self._max_batch_bytes[topic], self._takes_old_formats)

    async def _with_new_identity(self, position: Position) -> Position:
        if self._identity == NO_PRODUCER or position.producer_id == self._identity[0]:
            answer = await self._admin.ask_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1), InitProducerIdResponse
            )
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code), "InitProducerId")
            self._identity = (answer.producer_id, answer.producer_epoch)
        producer_id, epoch = self._identity
        return replace(position, producer_id=producer_id, producer_epoch=epoch, sequence=0)
