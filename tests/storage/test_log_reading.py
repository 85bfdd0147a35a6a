"""The end of a slice's last complete batch, wherever the read has ended."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gregor.protocol.records.batches import iter_batches
from gregor.protocol.records.compression import Codec
from gregor.storage.clock import ManualClock
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.log_reading import cut_incomplete_batch
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.payloads import payload


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> PartitionLog:
    """Return a log with small and large batches of all formats, between which lie several index entries."""
    log = PartitionLog.open(str(tmp_path_factory.mktemp("reads") / "t-0"), LogConfig(), ManualClock(1_000))
    for number in range(120):
        magic, codec = number % 3, Codec.GZIP if number % 5 == 0 else Codec.NONE
        values = [bytes(20_000 if number % 40 == 7 else 10 * (number % 7))] * (1 + number % 4)
        log.append(payload(values, magic=magic, codec=codec), leader_epoch=0)
    return log


@given(st.integers(0, 200), st.integers(1, 130_000))
@settings(max_examples=200)
def test_a_slice_is_cut_after_its_last_complete_batch(log: PartitionLog, offset: int, max_bytes: int) -> None:
    with log.read(offset, max_bytes) as found:
        whole = found.read()
        complete = [batch.end for batch in iter_batches(whole)]
        cut_incomplete_batch(found)
        assert found.size_bytes == (complete[-1] if complete else len(whole))


def test_an_empty_slice_stays_empty(log: PartitionLog) -> None:
    with log.read(log.log_end_offset, 1_000) as found:
        cut_incomplete_batch(found)
        assert found.size_bytes == 0
