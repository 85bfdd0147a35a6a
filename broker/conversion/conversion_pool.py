"""The memory of all conversions of one broker: one buffer for the event loop's thread, and one for each worker thread.

Uncompressed records are converted in the event loop's thread, between two waits, in a memory that all conversions
share. Compressed records take long and are converted in worker threads, each with its own memory: there are
``gregor.message.codec.threads`` of them, and further conversions wait in order of arrival.

No task keeps a memory from others while it waits for its client. Before the wait it lends its memory (`Lease.lend`); if
another task takes the memory, its content is lost and is converted again when the client continues.
"""

from __future__ import annotations

from typing import Protocol

import trio

from ...protocol.records.compression import Codec
from ...protocol.records.conversion_output import ConversionOutput
from ...protocol.records.lazy import DEFAULT_CHUNK_BYTES

DEFAULT_THREADS = 2
"""Default of gregor.message.codec.threads."""


NOBODY = 0
"""The number that stands for no stretch."""


CODECS_BY_NAME = {"none": None, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4}
"""The values of gregor.message.downconversion.zstd.codec."""


class ConversionSettings(Protocol):
    """A view of the configuration of conversions (a `BrokerConfig`)."""

    gregor_message_downconversion_chunk_bytes: int
    gregor_message_codec_threads: int
    gregor_message_downconversion_zstd_codec: str


class ConversionMemory:
    """A pair of buffers that conversions read into and write to, a chunk at a time."""

    __slots__ = ("chunk_bytes", "holder", "out", "position", "size_bytes", "stored")

    def __init__(self, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> None:
        self.chunk_bytes = chunk_bytes
        self.stored = memoryview(bytearray(chunk_bytes))
        self.holder = NOBODY
        """The number of the stretch whose bytes, ``size_bytes`` from ``position`` on, are in ``stored``."""
        self.position = 0
        self.size_bytes = 0
        # Small records grow when they are converted down; with room for twice the chunk most stay one piece.
        self.out = bytearray(2 * chunk_bytes)


class ConversionPool:
    """A pool of one broker's conversion memories, whose number is fixed."""

    def __init__(
        self,
        chunk_bytes: int = DEFAULT_CHUNK_BYTES,
        threads: int = DEFAULT_THREADS,
        zstd_codec: Codec | None = None,
    ) -> None:
        self.chunk_bytes = chunk_bytes
        self.zstd_codec = zstd_codec
        """The codec that replaces zstd for consumers without zstd; None if it is not replaced."""
        self.shared = ConversionMemory(chunk_bytes)
        """Memory that conversions in the event loop's thread share: each uses the memory until its task waits."""
        self.limiter = trio.CapacityLimiter(threads)
        self._put, self._free = trio.open_memory_channel[ConversionMemory](threads)
        for _ in range(threads):
            self._put.send_nowait(ConversionMemory(chunk_bytes))
        self._lent: dict[Lease, None] = {}
        """Leases whose task waits for its client, the longest waiting one first."""

    @classmethod
    def of(cls, settings: ConversionSettings) -> ConversionPool:
        """Return a pool with the configured chunks, threads and codec."""
        return cls(
            settings.gregor_message_downconversion_chunk_bytes,
            settings.gregor_message_codec_threads,
            CODECS_BY_NAME[settings.gregor_message_downconversion_zstd_codec],
        )

    @property
    def waiting_count(self) -> int:
        """The number of tasks that wait for a memory."""
        return self._free.statistics().tasks_waiting_receive

    async def take(self) -> ConversionMemory:
        """Wait for a memory and return it; give it back with `put_back`."""
        try:
            return self._free.receive_nowait()
        except trio.WouldBlock:
            pass
        if self._lent:
            return next(iter(self._lent)).forget()
        return await self._free.receive()

    def put_back(self, memory: ConversionMemory) -> None:
        """Return a memory to the pool."""
        self._put.send_nowait(memory)

    def lend(self, lease: Lease) -> None:
        """Offer the memory of a lease to the first task that waits for one, or to the next one."""
        self._lent[lease] = None
        if self.waiting_count:
            self.put_back(lease.forget())

    def unlend(self, lease: Lease) -> None:
        """Undo `lend`, unless another task has taken the memory."""
        self._lent.pop(lease, None)


class Lease:
    """A conversion's claim on a memory of the pool; it has the memory while it works, and perhaps while it waits.

    ``output`` is the buffer into which the conversion writes; it is emptied whenever the memory is lost.
    """

    __slots__ = ("_memory", "_output", "_pool")

    def __init__(self, pool: ConversionPool, output: ConversionOutput) -> None:
        self._pool = pool
        self._output = output
        self._memory: ConversionMemory | None = None

    async def hold(self) -> ConversionMemory:
        """Wait for a memory, unless the lease has one; no other task takes it before `lend` or `release`."""
        if self._memory is None:
            self._memory = await self._pool.take()
            self._output.buffer = memoryview(self._memory.out)
        else:
            self._pool.unlend(self)
        return self._memory

    def lend(self) -> None:
        """Offer the memory to other tasks; call this before waiting for a client."""
        if self._memory is not None:
            self._pool.lend(self)

    def forget(self) -> ConversionMemory:
        """Give up the memory and all bytes converted into it; return the memory."""
        memory, self._memory = self._memory, None
        assert memory is not None
        self._pool.unlend(self)
        self._output.clear()
        return memory

    def release(self) -> None:
        """Return the memory to the pool, if the lease has one, at the end."""
        if self._memory is not None:
            self._pool.put_back(self.forget())
