"""The threads that send large answers: reading, converting and sending go on without the interpreter's lock.

So large answers use other cores than the event loop, and small requests do not wait behind them. There are
``num.network.threads`` threads, started when they are first needed, each with one memory for conversions. An answer
returns to the event loop when it is sent, when its client does not read, and when the thread cannot continue it.
"""

from __future__ import annotations

import contextlib
import threading
from array import array
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Protocol

import trio

from .bulk_answer_cy import ONLY_BEGIN, BulkAnswer
from .bulk_memory import BulkMemory
from .bulk_stop import BulkStop

PATIENCE_MS = 5
"""The time for which a thread without other work waits for a client that does not read at once, unless it is slow."""


HELD_CHUNKS = 64
"""The converted bytes, in chunks, that all clients which do not read may hold; beyond that each holds only a little."""
LEAST_AHEAD_BYTES = 16 * 1024
"""The bytes that each client may hold then."""
SHARED_SEND_BUFFER_BYTES = 1024 * 1024
"""The send buffer of a client that is sent a file while answers wait for threads, unless it is configured.

A thread then returns less often to each of several clients, and they sleep less often: broker and clients take a tenth
less processor time each. What such a buffer holds are pages of the page cache, not copies.
"""
BEGINNING_S = 0.002
"""The time after the beginning of an answer in which another client's may begin too."""
HELD_PASSES = 3
"""The passes of trio's loop from a new connection to the first bytes of its answer: the connection's task begins, its
request is read, the answer begins."""
MOST_HELD_PASSES = 12
"""The passes after which answers are no longer held, however many others begin."""


class LaneSettings(Protocol):
    """A view of the configuration of the threads (a `BrokerConfig`)."""

    num_network_threads: int
    gregor_message_downconversion_chunk_bytes: int

    def is_set(self, key: str) -> bool:
        """Return whether a key is set."""


class BulkLane:
    """A pool of threads that send large answers, a turn of each answer at a time."""

    def __init__(self, settings: LaneSettings) -> None:
        self._settings = settings
        self._shared_send_buffer_bytes = 0 if settings.is_set("socket.send.buffer.bytes") else SHARED_SEND_BUFFER_BYTES
        self._waiting = array("q", [0])
        """The number of answers that wait for a thread, where compiled loops can read it."""
        self._queue: deque[QueuedAnswer] = deque()
        self._changed = threading.Condition()
        self._thread_count = 0
        self._idle_count = 0
        self._is_closed = False
        self._memory: BulkMemory | None = None
        """The memory of `begin`."""
        self._held_bytes = 0
        self._latest_begun = (-1, 0.0)
        """The socket of the answer that began last, and the time."""
        self._other_began = 0.0
        """The time at which the last answer of another client began."""
        self._one_of_many: BulkAnswer | None = None
        """The answer that began last, if others began shortly before it and threads do not have it yet."""
        self._held: list[QueuedAnswer] = []
        """Answers for the threads, while others begin."""
        self._held_passes = self._passes_left = 0

    def answer(self, descriptor: int) -> BulkAnswer:
        """Return an empty answer for the socket ``descriptor``."""
        return BulkAnswer(descriptor, self._waiting)

    def begin(self, answer: BulkAnswer) -> BulkStop:
        """Send the first bytes in the calling thread without a wait; return TURN if the socket may accept more.

        That takes one call of sendfile(2), or the conversion of one chunk.
        """
        now = perf_counter()
        if self._latest_begun[0] != answer.descriptor:
            self._other_began = self._latest_begun[1]
        self._latest_begun = (answer.descriptor, now)
        self._one_of_many = answer if now - self._other_began < BEGINNING_S else None
        if self._memory is None:
            self._memory = BulkMemory(self._settings.gregor_message_downconversion_chunk_bytes)
        return BulkStop(self._run(answer, self._memory, ONLY_BEGIN))

    def submit(self, answer: BulkAnswer, patience_ms: int, on_end: Callable[[], None]) -> QueuedAnswer:
        """Let threads send as much of the answer as possible; one of them calls ``on_end`` when they have stopped.

        A thread without other work waits for a client that does not read at once for ``patience_ms``.
        """
        queued = QueuedAnswer(answer, patience_ms, on_end)
        is_one_of_many, self._one_of_many = self._one_of_many is answer, None
        if is_one_of_many:
            self._hold(queued)
        else:
            self._begin(queued)
        return queued

    async def run(self, answer: BulkAnswer, patience_ms: int = PATIENCE_MS) -> BulkStop:
        """Let threads send as much of the answer as `submit`; return why they stopped.

        A task that is cancelled waits until its thread has let go of the answer, which takes one chunk at most.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        queued = self.submit(answer, patience_ms, _waking())

        def abort(_: object) -> trio.lowlevel.Abort:
            answer.cancel()
            return trio.lowlevel.Abort.FAILED

        await trio.lowlevel.wait_task_rescheduled(abort)
        await trio.lowlevel.checkpoint_if_cancelled()
        return queued.result()

    async def stop(self, queued: QueuedAnswer) -> None:
        """Cancel a submitted answer; return when no thread uses it. Its ``on_end`` is not called after this call."""
        queued.answer.cancel()
        with self._changed:
            if queued.has_ended:
                return
            queued.on_end = _waking()
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def forget(self, answer: BulkAnswer) -> None:
        """Stop counting the bytes of an answer that ends."""
        with self._changed:
            self._held_bytes -= answer.held_bytes

    @property
    def held_bytes(self) -> int:
        """The converted bytes of all answers whose clients do not read."""
        return self._held_bytes

    def send_buffer_bytes(self) -> int:
        """Return the least size of the send buffer of a client to which a file is sent now; 0 for any size."""
        return self._shared_send_buffer_bytes if self._waiting[0] > 0 else 0

    def is_busy(self) -> bool:
        """Return whether a thread sends an answer."""
        return self._thread_count > self._idle_count

    def close(self) -> None:
        """End the threads when the answers that they have are sent; do not wait for them."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _hold(self, queued: QueuedAnswer) -> None:
        """Let the threads have an answer a few passes of trio's loop later.

        Of many clients that connect at once each has its first bytes sooner if no thread converts for the first of them
        meanwhile, takes a processor from the event loop's thread and asks for the interpreter's lock.
        """
        self._held.append(queued)
        self._passes_left = HELD_PASSES
        if len(self._held) == 1:
            self._held_passes = 0
            trio.lowlevel.current_trio_token().run_sync_soon(self._count_pass)

    def _count_pass(self) -> None:
        """Count a pass of trio's loop, and let the threads have the held answers if it was the last one."""
        self._passes_left -= 1
        self._held_passes += 1
        if self._passes_left > 0 and self._held_passes < MOST_HELD_PASSES:
            trio.lowlevel.current_trio_token().run_sync_soon(self._count_pass)
            return
        held, self._held = self._held, []
        for queued in held:
            self._begin(queued)

    def _begin(self, queued: QueuedAnswer) -> None:
        with self._changed:
            self._queue.append(queued)
            self._waiting[0] = len(self._queue)
            if self._idle_count >= len(self._queue):
                self._changed.notify()
            elif self._thread_count < self._settings.num_network_threads:
                self._thread_count += 1
                name = f"gregor-network-{self._thread_count}"
                threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        """Run answers, in a thread of the pool."""
        memory = BulkMemory(self._settings.gregor_message_downconversion_chunk_bytes)
        while (queued := self._next_answer()) is not None:
            try:
                queued.stop = self._run(queued.answer, memory, queued.patience_ms)
            except Exception as failure:
                queued.failure = failure
            if queued.stop == BulkStop.TURN and queued.failure is None:
                self._begin(queued)
            else:
                with self._changed:
                    queued.has_ended = True
                    on_end = queued.on_end
                on_end()
                del on_end
            del queued

    def _run(self, answer: BulkAnswer, memory: BulkMemory, patience_ms: int) -> int:
        before = answer.held_bytes
        is_scarce = self._held_bytes >= HELD_CHUNKS * memory.chunk_bytes
        memory.ahead_bytes = min(LEAST_AHEAD_BYTES, len(memory.out)) if is_scarce else len(memory.out)
        try:
            return answer.run(memory, patience_ms)
        finally:
            with self._changed:
                self._held_bytes += answer.held_bytes - before

    def _next_answer(self) -> QueuedAnswer | None:
        """Wait for an answer to send; return None once the pool is closed."""
        with self._changed:
            self._idle_count += 1
            while not self._queue and not self._is_closed:
                self._changed.wait()
            self._idle_count -= 1
            if not self._queue:
                self._thread_count -= 1
                return None
            queued = self._queue.popleft()
            self._waiting[0] = len(self._queue)
            return queued


class QueuedAnswer:
    """An answer in the pool. ``on_end`` is called once `has_ended` is set."""

    __slots__ = ("answer", "failure", "has_ended", "on_end", "patience_ms", "stop")

    def __init__(self, answer: BulkAnswer, patience_ms: int, on_end: Callable[[], None]) -> None:
        self.answer = answer
        self.patience_ms = patience_ms
        self.on_end = on_end
        self.stop = int(BulkStop.TURN)
        self.failure: Exception | None = None
        self.has_ended = False

    def result(self) -> BulkStop:
        """Return why the threads stopped. Raises the exception of the thread if there was one."""
        if self.failure is not None:
            raise self.failure
        return BulkStop(self.stop)


def _waking() -> Callable[[], None]:
    """Return a function that reschedules the running task, from any thread."""
    task, token = trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()

    def wake() -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(trio.lowlevel.reschedule, task)

    return wake
