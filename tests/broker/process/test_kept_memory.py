"""The broker returns the memory of large buffers to the system once the buffers are freed."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import snappy

from gregor.broker.process.allocator import ARENAS, KEPT_BYTES, OPERATOR_VARIABLES, limit_kept_memory
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.records import v2
from gregor.protocol.records.compression import Codec
from tests.broker.api.log_requests import produce
from tests.broker_process import BrokerProcess, running_broker
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire, resident_bytes

CLIENTS = 2
INFLATED_BYTES = (19_000_000, 16_000_000, 13_000_000)
"""Sizes of batches: glibc's default is to map a buffer as large as the largest freed one, and to keep smaller ones."""

needs_mallopt = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")


def refused_batch(inflated_bytes: int) -> bytes:
    """Return a batch that the broker inflates to ``inflated_bytes`` zeros, which are no records."""
    body = snappy.compress(bytes(inflated_bytes))
    return v2.assemble_batch(
        body, record_count=5, base_offset=0, last_offset=4, attributes=Codec.SNAPPY, base_timestamp=0, max_timestamp=0
    )


def send_refused_batches(broker: BrokerProcess) -> None:
    with Wire(broker.address) as wire:
        for inflated_bytes in INFLATED_BYTES:
            answer = wire.ask(ApiKey.PRODUCE, 8, produce(refused_batch(inflated_bytes), acks=1))
            assert answer.responses[0].partition_responses[0].error_code != ErrorCode.NONE


@needs_mallopt
def test_a_broker_returns_the_memory_of_refused_batches_to_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in OPERATOR_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with running_broker(tmp_path, f"gregor.message.codec.threads={CLIENTS}") as broker:
        with Wire(broker.address) as wire:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        idle = resident_bytes(broker.pid)
        clients = [threading.Thread(target=send_refused_batches, args=(broker,)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        # The last buffers may be freed after their answers were sent.
        wait_until(lambda: resident_bytes(broker.pid) - idle < ARENAS * KEPT_BYTES)


@needs_mallopt
def test_glibc_takes_each_parameter() -> None:
    program = (
        "from gregor.broker.process.allocator import limit_kept_memory; raise SystemExit(not limit_kept_memory({}))"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=PATIENCE_S).returncode == 0


@pytest.mark.parametrize("variable", OPERATOR_VARIABLES)
def test_an_operators_setting_has_precedence(variable: str) -> None:
    calls: list[tuple[int, int]] = []

    def mallopt(parameter: int, value: int) -> int:
        calls.append((parameter, value))
        return 1

    libc = SimpleNamespace(mallopt=mallopt)
    assert not limit_kept_memory({variable: "1"}, libc)
    assert calls == []
    assert limit_kept_memory({}, libc)
    assert len(calls) == 3


def test_a_c_library_without_mallopt_is_left_alone() -> None:
    assert not limit_kept_memory({}, SimpleNamespace())
