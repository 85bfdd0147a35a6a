"""Fetches that are sent upstream before an old consumer asks for them.

A consumer that reads a partition to its end fetches from one offset after the other. While the gateway converts and
sends one answer, the broker upstream prepares the next one. It waits in the socket until the consumer asks for it, and
takes a part of `gregor.gateway.buffer.memory` from the start, so that it can be read at any time.

A fetch of partitions with several leaders is sent to each of them; its answers are used together or not at all.

The next offset of the consumer is only estimated: the messages of an answer are larger than the stored records, and the
answer is cut at its promised size. The estimate is low, and batches before the consumer's offset are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import trio

from ...broker.server.client_connection import Hangup
from ...protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse
from ...protocol.records import kernel_cy, v2
from ...protocol.records.batches import MAGIC_AT
from ...protocol.records.v0 import OFFSET_AND_SIZE
from ..link import Link
from ..stream import LinkLostError, Stream
from .buffer_memory import Hold

LONGEST_AGE_S = 1.0
"""The time after which an answer is too old to be used: leaders, records and rights may have changed."""
MARGIN = 1.02
"""The factor by which messages are estimated larger than those of the first batch."""
MARGIN_AFTER_MISS = 1.2
MOST_GROWTH = 8.0
MOST_PAUSES = 64
"""Most fetches without one ahead after estimates that were too high."""

Place = tuple[str, int]


class SentAhead(NamedTuple):
    """A fetch that was sent ahead, to one broker or several, and what it has asked for."""

    streams: Mapping[Link, Stream]
    hold: Hold
    version: int
    request: FetchRequest
    asked: Mapping[Place, FetchPartition]
    sent_at: float


class FetchAhead:
    """A client's fetch that was sent ahead, if there is one, and the estimate of the client's next offset."""

    def __init__(self) -> None:
        self._sent: SentAhead | None = None
        self._frames: list[bytearray] | None = None
        """The answers, once all have been read."""
        self._last: Mapping[Place, int] = {}
        self._growth = MARGIN
        self._misses = 0
        self._pauses = 0

    # --- the estimate

    def is_due(self, asked: Mapping[Place, FetchPartition]) -> bool:
        """Return whether the client reads on from its last answer, so that its next fetch can be sent ahead."""
        last, self._last = self._last, {place: part.fetch_offset for place, part in asked.items()}
        if last.keys() != asked.keys():
            self._growth, self._misses, self._pauses = MARGIN, 0, 0
            return False
        if self._pauses:
            self._pauses -= 1
            return False
        return any(part.fetch_offset > last[place] for place, part in asked.items())

    def next_offset(self, batches: memoryview, promised_bytes: int, growth: float) -> int | None:
        """Return an offset in format v2 that the client does not pass with this answer; None if there is no estimate.

        ``growth`` is the size of the first batch's messages relative to the batch.
        """
        self._growth = min(max(self._growth, growth * MARGIN), MOST_GROWTH)
        limit_bytes = min(int(promised_bytes / self._growth), len(batches) - 1)
        position, _ = kernel_cy.survey(batches, 0, len(batches), limit_bytes, v2.MAGIC)
        if position + MAGIC_AT >= len(batches) or batches[position + MAGIC_AT] != v2.MAGIC:
            return None
        return int(OFFSET_AND_SIZE.unpack_from(batches, position)[0])

    # --- the fetch

    def put(self, sent: SentAhead) -> None:
        """Keep a fetch that was sent."""
        self._sent = sent

    def uses(self, link: Link) -> bool:
        """Return whether an answer arrives on this link that was not read."""
        return self._sent is not None and self._frames is None and link in self._sent.streams

    async def read(self, hangup: Hangup) -> None:
        """Read the answers, so that their links can be used for other requests; lost and dropped ones are forgotten.

        Raises ClientGoneError if the client disconnects first.
        """
        sent = self._sent
        if sent is None or self._frames is not None:
            return
        frames: list[bytearray] = []
        unread = dict(sent.streams)
        try:
            for link, stream in sent.streams.items():
                frame = await self._read_one(stream, sent, hangup)
                del unread[link]
                stream.end()
                if frame is not None:
                    frames.append(frame)
        finally:
            for link, stream in unread.items():
                link.lose()
                stream.end()
            if len(frames) < len(sent.streams) or not sent.hold.size_bytes:
                self._forget()
            else:
                self._frames = frames

    async def _read_one(self, stream: Stream, sent: SentAhead, hangup: Hangup) -> bytearray | None:
        """Return an answer; None if its link was lost, or if there is no memory for the answer, which is discarded."""
        try:
            await stream.read_head(hangup)
            if stream.size <= sent.hold.size_bytes // len(sent.streams):
                return await stream.read_all()
            if sent.hold.size_bytes:
                # A broker returns the first batch whole, however large it is (KIP-74).
                self._pause()
            await stream.discard()
        except LinkLostError:
            pass
        return None

    async def take(
        self, version: int, request: FetchRequest, asked: Mapping[Place, FetchPartition], hangup: Hangup
    ) -> tuple[list[bytearray], Hold] | None:
        """Return the frames of the answers and their memory if they hold what is asked for now; else discard them.

        Raises ClientGoneError if the client disconnects first.
        """
        if self._sent is None:
            return None
        await self.read(hangup)
        sent, frames = self._sent, self._frames
        self._sent = self._frames = None
        if sent is None or frames is None:
            return None
        if trio.current_time() - sent.sent_at <= LONGEST_AGE_S and _is_same(sent, version, request, asked):
            if all(part.fetch_offset >= sent.asked[place].fetch_offset for place, part in asked.items()):
                self._misses = 0
                return frames, sent.hold
            self._growth *= MARGIN_AFTER_MISS
            self._pause()
        sent.hold.release()
        return None

    def drop(self) -> None:
        """Give up the memory at once, because others need it or the client has disconnected.

        Answers that were not read are discarded before the next use of their links, which so keep their logins.
        """
        if self._frames is not None:
            self._forget()
        elif self._sent is not None:
            self._sent.hold.release()

    def _pause(self) -> None:
        """Send fewer fetches ahead, as one was of no use."""
        self._misses += 1
        self._pauses = min(2**self._misses, MOST_PAUSES)

    def _forget(self) -> None:
        if self._sent is not None:
            self._sent.hold.release()
        self._sent = self._frames = None


def _is_same(sent: SentAhead, version: int, request: FetchRequest, asked: Mapping[Place, FetchPartition]) -> bool:
    """Return whether two fetches differ in offsets only."""
    return (
        sent.version == version
        and sent.asked.keys() == asked.keys()
        and (sent.request.max_bytes, sent.request.isolation_level) == (request.max_bytes, request.isolation_level)
        and all(
            (part.partition_max_bytes, part.current_leader_epoch)
            == (sent.asked[place].partition_max_bytes, sent.asked[place].current_leader_epoch)
            for place, part in asked.items()
        )
    )


def leave_out_passed(found: FetchResponse, asked: Mapping[Place, FetchPartition]) -> None:
    """Remove the batches that end before the offset that is asked for."""
    for topic in found.responses:
        for part in topic.partitions:
            stored = part.records
            wanted = asked.get((topic.topic, part.partition_index))
            if wanted is None or not isinstance(stored, memoryview):
                continue
            position = 0
            while (end := end_of_passed_batch(stored, position, wanted.fetch_offset)) is not None:
                position = end
            part.records = stored[position:]


def end_of_passed_batch(stored: memoryview, position: int, offset: int) -> int | None:
    """Return the position after a v2 batch whose last offset is below ``offset``; None if there is no such batch."""
    if position + v2.HEADER_SIZE > len(stored) or stored[position + MAGIC_AT] != v2.MAGIC:
        return None
    base_offset, size = OFFSET_AND_SIZE.unpack_from(stored, position)
    last_offset = base_offset + v2.INT32.unpack_from(stored, position + v2.LAST_OFFSET_DELTA_AT)[0]
    end = position + OFFSET_AND_SIZE.size + size
    return int(end) if last_offset < offset and position < end <= len(stored) else None
