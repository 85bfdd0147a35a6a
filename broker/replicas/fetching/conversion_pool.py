"""The memory of all conversions of one broker: one buffer for those in the event loop's thread, a few for the others.

Uncompressed records are converted in the event loop's thread, between two waits, in a memory that all share. Compressed
ones take long, so that happens in worker threads, each with a memory of its own: there are as many as
``gregor.message.codec.threads`` says, and who finds none waits, first come, first served.

Nobody waits for a client while it keeps a memory from others. Before a task waits for its client it lends its memory
back (`Lease.lend`); if another needs it, what was in it is gone, and is converted again when the client goes on.
"""

from __future__ import annotations

import trio

from ....protocol.records.conversion_output import ConversionOutput
from ....protocol.records.lazy import DEFAULT_CHUNK_BYTES

DEFAULT_THREADS = 2
"""Default of gregor.message.codec.threads."""


NOBODY = 0
"""Number of no stretch."""


class ConversionMemory:
    """What conversions read into and write to, a chunk at a time."""

    __slots__ = ("chunk_bytes", "holder", "out", "position", "size_bytes", "stored")

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self.stored = memoryview(bytearray(chunk_bytes))
        self.holder = NOBODY
        """Number of the stretch whose bytes are in ``stored``: ``size_bytes`` from ``position`` on."""
        self.position = 0
        self.size_bytes = 0
        # Small records grow when they are converted down; with room for twice the chunk most stay one piece.
        self.out = bytearray(2 * chunk_bytes)


class ConversionPool:
    """The memories of one broker's conversions; it never has more of them than at first."""

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES, threads: int = DEFAULT_THREADS) -> None:
        self.chunk_bytes = chunk_bytes
        self.shared = ConversionMemory(chunk_bytes)
        """For conversions in the event loop's thread: others use it whenever a task waits."""
        self.limiter = trio.CapacityLimiter(threads)
        self._put, self._free = trio.open_memory_channel[ConversionMemory](threads)
        for _ in range(threads):
            self._put.send_nowait(ConversionMemory(chunk_bytes))
        self._lent: dict[Lease, None] = {}
        """Leases whose task waits for its client; the one that has waited longest comes first."""

    @property
    def waiting_count(self) -> int:
        """Tasks that wait for a memory."""
        return self._free.statistics().tasks_waiting_receive

    async def take(self) -> ConversionMemory:
        """Wait for a memory; give it back with `put_back`."""
        try:
            return self._free.receive_nowait()
        except trio.WouldBlock:
            pass
        if self._lent:
            return next(iter(self._lent)).forget()
        return await self._free.receive()

    def put_back(self, memory: ConversionMemory) -> None:
        """Let others have a memory."""
        self._put.send_nowait(memory)

    def lend(self, lease: Lease) -> None:
        """Give the memory of a lease to whoever waits for one, or to the next who comes."""
        self._lent[lease] = None
        if self.waiting_count:
            self.put_back(lease.forget())

    def unlend(self, lease: Lease) -> None:
        """Undo `lend`, if nobody took the memory meanwhile."""
        self._lent.pop(lease, None)


class Lease:
    """One conversion's claim on a memory of the pool: it has one while it works, and perhaps while it waits.

    ``output`` is what the conversion writes to; it is emptied whenever the memory is lost.
    """

    __slots__ = ("_memory", "_output", "_pool")

    def __init__(self, pool: ConversionPool, output: ConversionOutput) -> None:
        self._pool = pool
        self._output = output
        self._memory: ConversionMemory | None = None

    async def hold(self) -> ConversionMemory:
        """Wait for a memory unless there is one; nobody takes it before `lend` or `release`."""
        if self._memory is None:
            self._memory = await self._pool.take()
            self._output.buffer = memoryview(self._memory.out)
        else:
            self._pool.unlend(self)
        return self._memory

    def lend(self) -> None:
        """Let others take the memory from now on; call it before waiting for a client."""
        if self._memory is not None:
            self._pool.lend(self)

    def forget(self) -> ConversionMemory:
        """Lose the memory, and all that was converted into it; returns it."""
        memory, self._memory = self._memory, None
        assert memory is not None
        self._pool.unlend(self)
        self._output.clear()
        return memory

    def release(self) -> None:
        """Give the memory back if there is one; for the end."""
        if self._memory is not None:
            self._pool.put_back(self.forget())
