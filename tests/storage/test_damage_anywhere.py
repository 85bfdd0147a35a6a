"""Damage at every byte: for any content of a file only batches that were written are served."""

import copy
from typing import Any

import pytest

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles, Node
from tests.storage.payloads import payload, read_records

DIRECTORY = "/logs/topic-0"
SEGMENT = f"{0:020d}.log"
INDEX = f"{0:020d}.gindex"
NOW_MS = 10_000
CONFIG = LogConfig(index_interval_bytes=100, retention_ms=-1, file_delete_delay_ms=0)
BATCHES = 4
FIRST_EPOCH = 4
"""Leader epoch from which flipped bits make higher and lower epochs."""
NEW_VALUE = b"after the damage"

both_stops = pytest.mark.parametrize("is_clean", [False, True], ids=["killed", "stopped"])
every_format = pytest.mark.parametrize(
    ("magic", "codec"),
    [(0, Codec.NONE), (0, Codec.GZIP), (1, Codec.NONE), (1, Codec.GZIP), (2, Codec.NONE), (2, Codec.GZIP)],
)


def open_log(files: ForgetfulFiles, *, is_clean: bool) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, CONFIG, ManualClock(NOW_MS), pool=OpenFiles(files), is_clean=is_clean)


def batches_of(log: PartitionLog) -> dict[int, bytes]:
    """Return the bytes of every batch that a fetch returns, by the last offset of the batch."""
    served: dict[int, bytes] = {}
    for offset in range(log.log_start_offset, log.log_end_offset):
        try:
            with log.read(offset, 1) as found:
                served |= {batch.last_offset: bytes(batch.view) for batch in iter_batches(found.read())}
        except BrokerError as fault:
            if fault.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
    return served


def batch_ends(segment: bytes) -> list[tuple[int, int]]:
    """Return (position after a batch, offset after it) for each batch."""
    return [(batch.end, batch.last_offset + 1) for batch in iter_batches(segment)]


class Sample:
    """A closed log of four batches in one segment, in two leader epochs, of which copies are damaged."""

    def __init__(self, magic: int = 2, codec: Codec = Codec.NONE) -> None:
        self._files = ForgetfulFiles()
        log = open_log(self._files, is_clean=False)
        for number in range(BATCHES):
            values = [b"%d %d" % (number, index) for index in range(2)]
            producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 2 * number}
            produced = payload(values, magic=magic, codec=codec, timestamp=NOW_MS, **producer)
            log.append(produced, leader_epoch=FIRST_EPOCH + number // 2)
        self._written = batches_of(log)
        log.close()
        self.segment = self.contents(SEGMENT)

    def contents(self, name: str) -> bytes:
        """Return the bytes of a file as it was written."""
        return bytes(self._files.nodes[f"{DIRECTORY}/{name}"].data)

    def good_before(self, position: int) -> int:
        """Return the offset below which no batch has the byte at `position`, or one after it."""
        return max((offset for end, offset in batch_ends(self.segment) if end <= position), default=0)

    def check(self, name: str, damaged: bytes, good_before: int, *, is_clean: bool) -> None:
        """Check that batches below `good_before` are served, that no bad batch is, and that appends work."""
        files = copy.deepcopy(self._files)
        node = files.nodes[f"{DIRECTORY}/{name}"] = Node(NOW_MS)
        node.data = bytearray(damaged)
        log = open_log(files, is_clean=is_clean)
        served = batches_of(log)
        for last_offset, batch in self._written.items():
            if last_offset < good_before:
                assert served[last_offset] == batch
        for last_offset, found in served.items():
            assert found == self._written.get(last_offset), "a bad batch was served"
        produced = payload([NEW_VALUE], timestamp=NOW_MS)
        base = log.append(produced, leader_epoch=log.leader_epoch + 1).base_offset
        assert read_records(log, base)[0].value == NEW_VALUE
        log.close()
        again = open_log(files, is_clean=True)
        assert read_records(again, base)[0].value == NEW_VALUE
        again.abandon()


def flipped(data: bytes, position: int, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[position] ^= 1 << bit
    return bytes(damaged)


@both_stops
@every_format
def test_a_segment_with_any_flipped_bit_serves_no_bad_batch(magic: int, codec: Codec, is_clean: bool) -> None:
    sample = Sample(magic, codec)
    for position in range(len(sample.segment)):
        # The sizes of batches are odd, so that the same byte of another batch gets other bits.
        damaged = flipped(sample.segment, position, position % 8)
        sample.check(SEGMENT, damaged, sample.good_before(position), is_clean=is_clean)


@both_stops
@every_format
def test_a_segment_truncated_at_any_byte_serves_no_bad_batch(magic: int, codec: Codec, is_clean: bool) -> None:
    sample = Sample(magic, codec)
    for size in range(len(sample.segment)):
        sample.check(SEGMENT, sample.segment[:size], sample.good_before(size), is_clean=is_clean)


@both_stops
@pytest.mark.parametrize("name", [INDEX, "leader-epoch-checkpoint", "00000000000000000008.snapshot"])
def test_an_index_checkpoint_or_snapshot_with_any_flipped_bit_loses_no_batch(name: str, is_clean: bool) -> None:
    sample = Sample()
    written = sample.contents(name)
    for place in range(8 * len(written)):
        sample.check(name, flipped(written, place // 8, place % 8), 2 * BATCHES, is_clean=is_clean)
