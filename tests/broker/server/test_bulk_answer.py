"""Answers that a thread sends: the bytes of the stream, wherever the loop stops and begins again, in both builds."""

from __future__ import annotations

import errno
import os
import random
import socket
from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gregor.broker.server import bulk_answer_cy
from gregor.broker.server.bulk_memory import BulkMemory
from gregor.broker.server.bulk_stop import BulkStop
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.lazy import LazyConversion, converted_chunks, plan_down_conversion
from gregor.protocol.records.padding import padding
from gregor.protocol.records.record import Record
from gregor.protocol.records.stretch import as_stretch
from gregor.protocol.records.v2 import build_batch

CHUNK_BYTES = 4096
TIMESTAMP = 1_700_000_000_000
ALL_OFFSETS = 0
WHOLE_BYTES = 2 * CHUNK_BYTES
LARGEST_HEAD_BYTES = 40
"""More than offset, size and head of a v1 message with a key of one byte."""


@pytest.fixture(autouse=True)
def build(record_build: str) -> str:
    """Run each test with both builds."""
    return record_build


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Provide a broker's non-blocking socket and its client's."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def batches(sizes: list[int], codec: Codec = Codec.NONE, values: int = 3, first: int = 0) -> bytes:
    """Return one v2 batch of ``values`` records for each size of their values."""
    stored = bytearray()
    offset = first
    for size in sizes:
        records = [
            Record(offset + n, TIMESTAMP + n, b"k", random.Random(size + n).randbytes(size)) for n in range(values)
        ]
        stored += build_batch(records, codec=codec)
        offset += values
    return bytes(stored)


def read_all(theirs: socket.socket, most_bytes: int = 1 << 20) -> bytes:
    """Return what has arrived."""
    try:
        return theirs.recv(most_bytes)
    except BlockingIOError:
        return b""


def plan(stored: bytes, to_magic: int, first_offset: int = ALL_OFFSETS) -> LazyConversion:
    """Return the plan of a down-conversion in chunks of ``CHUNK_BYTES``."""
    return plan_down_conversion(memoryview(stored), to_magic, first_offset, chunk_bytes=CHUNK_BYTES)


def expected(stored: bytes, to_magic: int, first_offset: int = ALL_OFFSETS) -> bytes:
    """Return the bytes of the conversion without a thread."""
    return b"".join(map(bytes, plan(stored, to_magic, first_offset).pieces(bytearray(2 * CHUNK_BYTES))))


def rest_of(stored: bytes, planned: LazyConversion, stored_at: int, size_bytes: int) -> bytes:
    """Return the rest of a conversion as a connection's own task sends it."""
    conversion = LazyConversion(
        as_stretch(memoryview(stored)),
        planned.to_magic,
        ALL_OFFSETS,
        size=size_bytes,
        first_end=planned.first_end,
        is_compressed=False,
        chunk_bytes=CHUNK_BYTES,
        limit_bytes=1 << 20,
        begin=stored_at,
    )
    return b"".join(map(bytes, conversion.pieces(bytearray(2 * CHUNK_BYTES))))


@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize("first_offset", [0, 4])
@pytest.mark.parametrize("sizes", [[10], [300] * 40, [1200, 5, 700, 1300, 0] * 9, [1] * 500])
@pytest.mark.parametrize("ahead_bytes", [(WHOLE_BYTES, WHOLE_BYTES), (600, 600), (1, 1), (1, WHOLE_BYTES)])
def test_all_rows_arrive_in_order_however_slowly_the_client_reads(
    pair: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    to_magic: int,
    first_offset: int,
    sizes: list[int],
    ahead_bytes: tuple[int, int],
) -> None:
    ours, theirs = pair
    stored = batches(sizes)
    path = tmp_path / "segment"
    path.write_bytes(b"before" + stored + b"behind")
    planned = plan(stored, to_magic, first_offset)
    memory = BulkMemory(CHUNK_BYTES)
    other = BulkMemory(CHUNK_BYTES)
    memory.ahead_bytes, other.ahead_bytes = ahead_bytes
    most_held_bytes = max(*ahead_bytes, 2 * (max(sizes) + LARGEST_HEAD_BYTES))
    with path.open("rb") as file:
        answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [1]))
        answer.rows.add_bytes(b"head")
        for _ in range(2):
            answer.rows.add_conversion(
                file.fileno(), 6, len(stored), planned.size, planned.first_end, to_magic, first_offset
            )
            answer.rows.add_bytes(b"between")
        answer.rows.add_file(file.fileno(), 2, len(stored))
        answer.rows.add_file(file.fileno(), 0, 6)
        received = bytearray()
        sent_by_task = 0
        converted = expected(stored, to_magic, first_offset)
        while (stop := answer.run(memory, 0)) != BulkStop.SENT:
            assert answer.held_bytes <= most_held_bytes
            # Another answer uses the memory in between.
            memory.stored[:] = b"x" * CHUNK_BYTES
            memory.out[:] = b"y" * len(memory.out)
            memory, other = other, memory
            if stop in (BulkStop.NEEDS_CODEC, BulkStop.FAILED):
                # The task of the connection sends the rest of the row.
                while len(received) < answer.sent_bytes + sent_by_task:
                    received += read_all(theirs)
                received += converted[answer.row_done :]
                sent_by_task += planned.size - answer.row_done
                answer.skip_row()
                continue
            assert stop in (BulkStop.FULL, BulkStop.TURN)
            received += read_all(theirs, 1000)
        while chunk := read_all(theirs):
            received += chunk
    file_part = (b"before" + stored)[2 : 2 + len(stored)]
    assert bytes(received) == b"head" + converted + b"between" + converted + b"between" + file_part + b"before"


@pytest.mark.parametrize("ahead_bytes", [WHOLE_BYTES, 500])
@pytest.mark.parametrize("padded_bytes", [1, 5, 11, 12, 13, 60, 5_000, 131_072, 131_073, 131_083, 131_084, 300_000])
def test_a_promise_above_the_converted_size_is_padded_like_that_of_a_conversion_without_a_thread(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, padded_bytes: int, ahead_bytes: int
) -> None:
    ours, theirs = pair
    stored = batches([300] * 3)
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(stored, 1)
    converted = b"".join(
        converted_chunks(memoryview(stored), 1, 0, memoryview(bytearray(1 << 16)), first_end=len(stored))
    )
    size = len(converted) + padded_bytes
    answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
    received = b""
    with path.open("rb") as file:
        for _ in range(2):
            answer.rows.add_conversion(file.fileno(), 0, len(stored), size, planned.first_end, 1, 0)
        memory = BulkMemory(CHUNK_BYTES)
        memory.ahead_bytes = ahead_bytes
        while (stop := answer.run(memory, 0)) == BulkStop.FULL:
            received += read_all(theirs, 10_007)
    assert stop == BulkStop.SENT
    while piece := read_all(theirs):
        received += piece
    assert received == 2 * (converted + b"".join(padding(padded_bytes)))


def test_an_answer_that_only_begins_returns_after_its_first_bytes_and_waits_for_no_client(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = pair
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    stored = batches([1000] * 30)
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(stored, 1)
    memory = BulkMemory(CHUNK_BYTES)
    with path.open("rb") as file:
        answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
        answer.rows.add_bytes(b"head")
        answer.rows.add_conversion(file.fileno(), 0, len(stored), planned.size, planned.first_end, 1, 0)
        assert answer.run(memory, bulk_answer_cy.ONLY_BEGIN) == BulkStop.TURN
        begun = answer.sent_bytes
        assert 4 < begun < planned.size
        while answer.run(memory, bulk_answer_cy.ONLY_BEGIN) == BulkStop.TURN:
            pass
        received = read_all(theirs)
        assert received[: 4 + planned.size] == (b"head" + expected(stored, 1))[: len(received)]
        # A client that has not read the answer before.
        with suppress(BlockingIOError):
            while ours.send(b"x" * 4096):
                pass
        waiting = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
        waiting.rows.add_file(file.fileno(), 0, len(stored))
        assert waiting.run(memory, bulk_answer_cy.ONLY_BEGIN) == BulkStop.FULL
        assert waiting.sent_bytes == 0


def text_batches(sizes: list[int], codec: Codec, first: int = 0) -> bytes:
    """Return one v2 batch of three records that are easy to compress for each size of their values."""
    stored = bytearray()
    for number, size in enumerate(sizes):
        values = random.Random(size).choices(b"order region status ", k=size)
        records = [Record(first + 3 * number + n, TIMESTAMP + n, None if n else b"k", bytes(values)) for n in range(3)]
        stored += build_batch(records, codec=codec)
    return bytes(stored)


@pytest.mark.parametrize("to_magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("ahead_bytes", [WHOLE_BYTES, 600])
@pytest.mark.parametrize("begins_plain", [False, True])
def test_compressed_batches_are_converted_as_without_a_thread_however_slowly_the_client_reads(
    pair: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    codec: Codec,
    to_magic: int,
    ahead_bytes: int,
    begins_plain: bool,
) -> None:
    ours, theirs = pair
    stored = text_batches([500, 900, 340, 2100] * 8, codec, first=18)
    stored = batches([400] * 6) + stored if begins_plain else stored + batches([400] * 6, first=200)
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(stored, to_magic)
    answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [1]))
    received = b""
    memory, other = (BulkMemory(CHUNK_BYTES) for _ in range(2))
    memory.ahead_bytes = other.ahead_bytes = ahead_bytes
    with path.open("rb") as file:
        answer.rows.add_conversion(file.fileno(), 0, len(stored), planned.size, planned.first_end, to_magic, 0)
        answer.rows.add_bytes(b"behind")
        while (stop := answer.run(memory, 0)) in (BulkStop.FULL, BulkStop.TURN):
            assert answer.held_bytes <= WHOLE_BYTES
            received += read_all(theirs, 900)
            memory.stored[:] = b"x" * CHUNK_BYTES
            memory.out[:] = b"y" * len(memory.out)
            memory, other = other, memory
    assert stop == BulkStop.SENT
    while piece := read_all(theirs):
        received += piece
    assert received == expected(stored, to_magic) + b"behind"


def broken(stored: bytes) -> bytes:
    """Return a copy in which the compressed records are damaged."""
    return stored[:80] + bytes(40) + stored[120:]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(batches([500] * 3, Codec.ZSTD, first=40), id="zstd"),
        pytest.param(batches([5] * 3, Codec.LZ4, first=40), id="small"),
        pytest.param(batches([4_000] * 3, Codec.GZIP, first=40), id="larger than the buffers"),
        pytest.param(text_batches([23_000] * 3, Codec.SNAPPY, first=40), id="snappy blocks that do not match"),
        pytest.param(broken(text_batches([900], Codec.GZIP, first=40)), id="broken"),
    ],
)
def test_a_conversion_stops_before_batches_that_need_a_library_and_the_caller_sends_the_rest(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, other: bytes
) -> None:
    ours, theirs = pair
    plain = batches([400] * 6) + text_batches([500, 900], Codec.LZ4, first=18)
    stored = plain + other
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(stored, 1)
    answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
    received = b""
    with path.open("rb") as file:
        answer.rows.add_conversion(file.fileno(), 0, len(stored), planned.size, planned.first_end, 1, 0)
        memory = BulkMemory(CHUNK_BYTES)
        while (stop := answer.run(memory, 0)) == BulkStop.FULL:
            received += read_all(theirs)
    while piece := read_all(theirs):
        received += piece
    assert stop == BulkStop.NEEDS_CODEC
    assert 0 < answer.stored_at <= len(plain)
    assert len(received) == answer.row_done
    whole = received + rest_of(stored, planned, answer.stored_at, planned.size - answer.row_done)
    assert whole == expected(stored, 1)


def test_a_conversion_of_damaged_records_stops_after_a_correct_prefix(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = pair
    stored = bytearray(batches([300] * 3))
    second = len(stored) // 3
    stored[second + 61 : second + 66] = b"\xff" * 5
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(bytes(stored), 1)
    answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
    with path.open("rb") as file:
        answer.rows.add_conversion(file.fileno(), 0, len(stored), planned.size, planned.first_end, 1, 0)
        assert answer.run(BulkMemory(CHUNK_BYTES), 0) == BulkStop.FAILED
    received = read_all(theirs)
    assert received == expected(bytes(stored), 1)[: answer.row_done]
    assert 0 < answer.row_done < planned.size


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_conversion_costs_are_the_same_with_and_without_a_thread(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path, codec: Codec
) -> None:
    ours, _ = pair
    stored = text_batches([700], codec) if codec else batches([40] * 8)
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(stored, 1)
    answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
    with path.open("rb") as file:
        answer.rows.add_conversion(file.fileno(), 0, len(stored), planned.size, planned.first_end, 1, 0)
        answer.run(BulkMemory(CHUNK_BYTES), 0)
    for _ in planned.pieces(bytearray(2 * CHUNK_BYTES)):
        pass
    records, temporary_bytes, _ = answer.rows.counted(0)
    assert (records, temporary_bytes) == (planned.converted_count, planned.temporary_bytes)


def test_a_shorter_file_and_a_closed_socket_are_reported(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = pair
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 20_000)
    memory = BulkMemory(CHUNK_BYTES)
    with path.open("rb") as file:
        for size in (20_001, 8_000):
            answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
            answer.rows.add_file(file.fileno(), 20_000 - size + 1, size)
            while (stop := answer.run(memory, 0)) == BulkStop.FULL:
                read_all(theirs)
            assert stop == BulkStop.FILE_HAS_ENDED
        theirs.close()
        answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
        answer.rows.add_bytes(b"x")
        assert answer.run(memory, 0) == BulkStop.BROKEN
        assert answer.error in (errno.EPIPE, errno.ECONNRESET)


def sizes_of_sends(theirs: socket.socket) -> Iterator[int]:
    """Yield what each call has sent to a socket that keeps messages apart."""
    while piece := read_all(theirs):
        yield len(piece)


@pytest.mark.parametrize("has_room", [True, False])
def test_two_chunks_are_sent_at_once_while_the_socket_has_room_for_them(tmp_path: Path, has_room: bool) -> None:
    stored = batches([300] * 60)
    path = tmp_path / "segment"
    path.write_bytes(stored)
    planned = plan(stored, 1)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, path.open("rb") as file:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 500_000 if has_room else 3 * CHUNK_BYTES)
        ours.setblocking(False)
        theirs.setblocking(False)
        answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
        answer.rows.add_conversion(file.fileno(), 0, len(stored), planned.size, planned.first_end, 1, 0)
        memory = BulkMemory(CHUNK_BYTES)
        sent: list[int] = []
        while (stop := answer.run(memory, 0)) == BulkStop.FULL:
            sent += sizes_of_sends(theirs)
        sent += sizes_of_sends(theirs)
    assert stop == BulkStop.SENT
    assert sum(sent) == planned.size
    # The first chunk is sent at once, and what is left at the end may be small.
    assert sent[0] <= CHUNK_BYTES
    if has_room:
        assert min(sent[1:-1]) >= CHUNK_BYTES * 3 // 2
    else:
        assert max(sent[-5:]) <= CHUNK_BYTES


def test_a_cancelled_answer_stops(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    answer = bulk_answer_cy.BulkAnswer(ours.fileno(), array("q", [0]))
    answer.rows.add_bytes(os.urandom(64))
    answer.cancel()
    assert answer.run(BulkMemory(CHUNK_BYTES), 1000) == BulkStop.CANCELLED
    assert read_all(theirs) == b""
