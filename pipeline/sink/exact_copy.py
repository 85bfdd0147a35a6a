"""Exactly-once appends to one partition: each transaction also commits the progress in the source.

The progress is a group's offset for the target partition: the source's next offset. A starting copy takes over the
transactional id, which aborts an open transaction of an earlier task and fences that task; only then is the progress
read, so no other task can change it any more. The metadata of the offset has the purpose of the progress and the
topic's id: a recreated topic of the same name starts without progress, and is an error in the middle of a copy.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import trio

from ...client import Admin, Producer
from ...client.errors import ClientError
from ...client.wire.group_offsets import CommittedOffset
from ...protocol.errors import BrokerError
from ...protocol.records.record import Buffer
from ...protocol.schema import NO_UUID
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError, RecreatedTopicError
from ..kafka.clients import bootstrap_of, client_config
from ..kafka.wire import WireSettings
from .batch_pipe import BatchPipe

T = TypeVar("T")

TRANSACTION_TIMEOUT_MS = 900_000
"""The largest value that Kafka's brokers allow."""
ATTEMPTS = 5
"""The number of consecutive attempts to continue a copy when brokers fail or lose state."""
NOBODY = (-1, -1)
PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class CopyTarget:
    """The target of a copy. `purpose` separates uses of a group that must not continue each other's progress."""

    settings: WireSettings
    group: str
    place: AnyTopicPartition
    purpose: str

    @property
    def transactional_id(self) -> str:
        """The transactional id of the only producer that may write the partition for this group."""
        topic, partition = self.place
        return f"{self.group}.{topic}.{partition}"


class ExactCopy:
    """An exactly-once copy to one partition, as a context manager; see the module."""

    def __init__(self, target: CopyTarget) -> None:
        self._target = target
        self._bootstrap = bootstrap_of(target.settings)
        self._config = client_config(target.settings)
        identity: dict[str, Any] = {
            "transactional_id": target.transactional_id,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
            **self._config,
        }
        self._producer = Producer(self._bootstrap, **identity)
        self._pipe = BatchPipe(target.settings, target.place, target.transactional_id)
        self._topic_id = NO_UUID
        self.has_appended = False
        """Whether a transaction was committed."""
        self.reached: int | None = None
        """The source's next offset, once it is known."""

    async def __aenter__(self) -> Self:
        await self._producer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._pipe:
            await self._producer.__aexit__(kind, error, traceback)

    async def partition_count(self) -> int:
        """Return the partition count of the target's topic."""
        return len(await self._producer.partitions_for(self._target.place[0]))

    async def progress(self) -> tuple[int | None, Any]:
        """Return the source's next offset, None if nothing was copied, and the note of the last `append`.

        Must be called first. Raises PipelineError if the group has the progress of another purpose.
        """
        place = self._target.place
        self._topic_id = await trio.to_thread.run_sync(self._pipe.topic_id)
        async with Admin(self._bootstrap, **self._config) as admin:
            committed = (await admin.committed_offsets(self._target.group, [place])).get(place)
        if committed is None:
            return None, None
        try:
            text = json.loads(committed.metadata)
            purpose, note = text["purpose"], text.get("note")
            is_of_this_topic = text.get("topic") == str(self._topic_id)
        except (ValueError, TypeError, KeyError, AttributeError):
            purpose, note, is_of_this_topic = committed.metadata, None, False
        if purpose != self._target.purpose:
            raise PipelineError(
                f"group {self._target.group} has progress of something else at {place[0]}-{place[1]}: {purpose!r}, "
                f"not {self._target.purpose!r}; choose another --name"
            )
        if not is_of_this_topic:
            # Brokers delete a topic's offsets with it, but not those of a transaction that ends just afterwards.
            return None, None
        self.reached = committed.offset
        return committed.offset, note

    async def append(
        self, batches: Sequence[Buffer], next_offset: int, note: Callable[[list[int]], Any] = lambda offsets: None
    ) -> list[int]:
        """Append v2 batches and commit the progress up to `next_offset`, both or neither.

        Batches in writable memory are changed in place: the caller must own the memory. Returns the offset of each
        batch's first record; `note` converts these offsets to the note that is stored with the progress. Raises
        RecreatedTopicError.
        """
        producer, place = self._producer, self._target.place
        async with producer.transaction():
            identity = await producer.join_transaction(*place) if batches else NOBODY
            # Requests in flight cannot be withdrawn: a cancelled call waits for their answers.
            offsets = await trio.to_thread.run_sync(self._pipe.append, batches, identity)
            found = await trio.to_thread.run_sync(self._pipe.topic_id)
            if found != self._topic_id:
                # The first batches of this transaction may be in the former topic, the others in the new one.
                raise RecreatedTopicError(*place, next_offset, "target", self._topic_id, found)
            described = {"purpose": self._target.purpose, "topic": str(self._topic_id), "note": note(offsets)}
            text = json.dumps(described, separators=(",", ":"))
            await producer.send_offsets_to_transaction(self._target.group, {place: CommittedOffset(next_offset, text)})
        self.has_appended, self.reached = True, next_offset
        return offsets


def copy_with_patience(target: CopyTarget, work: Callable[[ExactCopy], Awaitable[T]], *, attempts: int = ATTEMPTS) -> T:
    """Run `work`, which continues from the copy's progress, and run it again when brokers fail meanwhile.

    Raises PipelineError.
    """

    async def try_until_done() -> T:
        failures = reached = 0
        while True:
            copy = ExactCopy(target)
            try:
                async with copy:
                    return await work(copy)
            except (BrokerError, ClientError) as fault:
                reached = copy.reached or reached
                failures = 1 if copy.has_appended else failures + 1
                if failures >= attempts:
                    topic, partition = target.place
                    raise PipelineError(f"{topic}-{partition} at offset {reached} of the source: {fault}") from fault
                await trio.sleep(PAUSE_S * failures)

    return trio.run(try_until_done)
