"""Disks that are slow or full, and a clock that is wrong."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.faults.clock import MovableClock
from gregor.broker.faults.disk import DiskPlace, place_of
from gregor.broker.faults.injection import FaultInjection
from gregor.broker.metadata.state import ResourceType
from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.storage.clock import ManualClock
from gregor.storage.disk.log_directory import StorageUnavailableError
from tests.broker.faults.faulty_broker import START_MS, FaultyBroker, ask, produce
from tests.wire import Wire

ORDERS, PAYMENTS = ("orders", 0), ("payments", 0)


async def test_a_full_disk_refuses_appends_and_takes_them_again_when_there_is_room(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(full="disk=append error=ENOSPC")
    assert await produce(wire, ORDERS) == {ORDERS: ErrorCode.KAFKA_STORAGE_ERROR}
    # The metadata log with the rules is on that disk.
    faulty.rules()
    assert await produce(wire, ORDERS) == {ORDERS: 0}


async def test_an_io_error_of_an_append_gets_kafka_storage_error_and_a_retry_succeeds(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    await produce(wire, ORDERS)
    faulty.rules(failing="disk=append topic=orders error=EIO first=1")
    codes = [(await produce(wire, ORDERS))[ORDERS] for _ in range(2)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]


async def test_a_disk_rule_for_one_partition_fails_appends_to_that_partition_only(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(full="disk=append topic=orders partition=0 error=KAFKA_STORAGE_ERROR")
    assert await produce(wire, ORDERS, ("orders", 1), PAYMENTS) == {
        ORDERS: ErrorCode.KAFKA_STORAGE_ERROR,
        ("orders", 1): 0,
        PAYMENTS: 0,
    }
    assert faulty.strikes == {"full": 1}


async def test_a_disk_rule_for_one_log_directory_acts_on_that_directory_only(
    faulty: FaultyBroker, tmp_path: Path
) -> None:
    wire = await faulty.connect()
    faulty.rules(elsewhere=f"disk=append dir={tmp_path / 'other'} error=EIO")
    assert await produce(wire, ORDERS) == {ORDERS: 0}
    faulty.rules(here=f"disk=append dir={tmp_path / 'logs'} error=EIO")
    assert await produce(wire, ORDERS) == {ORDERS: ErrorCode.KAFKA_STORAGE_ERROR}


async def test_a_slow_disk_holds_appends_up(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(slow="disk=append topic=orders delay=30ms first=1")
    began = time.monotonic()
    assert await produce(wire, ORDERS) == {ORDERS: 0}
    assert time.monotonic() - began >= 0.03


TWO_DIRECTORIES = {"log.flush.interval.messages": "1", "log.dirs": "{tmp}/metadata,{tmp}/logs"}
"""The first one has the metadata log and orders-1, the second one orders-0."""


@pytest.mark.parametrize("properties", [TWO_DIRECTORIES])
async def test_records_are_not_acknowledged_when_fsync_fails(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    faulty.rules(failing="disk=fsync topic=orders error=EIO")
    assert await produce(wire, ORDERS) == {ORDERS: ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize("properties", [TWO_DIRECTORIES])
async def test_a_directory_in_which_an_fsync_has_failed_is_offline(faulty: FaultyBroker, tmp_path: Path) -> None:
    wire = await faulty.connect()
    broker, elsewhere = faulty.broker, ("orders", 1)
    log = tmp_path / "logs" / "orders-0" / f"{0:020d}.log"
    faulty.rules(failing="disk=fsync topic=orders partition=0 error=EIO")
    await produce(wire, ORDERS)
    size_bytes = log.stat().st_size
    while not broker.services.partitions.is_offline(*ORDERS):
        await broker.directories.wait_for_change()
    # The disk works again, but its content is not known.
    faulty.rules()
    assert await produce(wire, ORDERS, elsewhere) == {ORDERS: ErrorCode.KAFKA_STORAGE_ERROR, elsewhere: 0}
    assert log.stat().st_size == size_bytes, "a refused record is not written again"
    assert broker.services.logs.health.failed_ids() == [broker.services.logs.directories[1].directory_id]
    described = (await ask(wire, ApiKey.METADATA, 9, MetadataRequest(topics=None))).topics
    leaders = {(t.name, p.partition_index): (p.leader_id, p.error_code) for t in described for p in t.partitions}
    assert leaders[ORDERS] == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert leaders[elsewhere] == (1, 0)
    directories = (await ask(wire, ApiKey.DESCRIBE_LOG_DIRS, 1, DescribeLogDirsRequest(topics=None))).results
    assert [found.error_code for found in directories] == [0, ErrorCode.KAFKA_STORAGE_ERROR]


async def run_and_produce(broker: Broker, topic: str) -> None:
    """Run a broker until it ends by itself, after one record to a new topic."""
    async with trio.open_nursery() as nursery:
        await nursery.start(broker.run)
        broker.services.metadata.create_topic(topic)
        wire = await trio.to_thread.run_sync(Wire, ("127.0.0.1", broker.services.serving.listening[0].port))
        with wire:
            await produce(wire, (topic, 0))
            await trio.sleep_forever()


async def test_a_broker_ends_when_its_last_directory_has_failed(tmp_path: Path) -> None:
    faults = {"gregor.fault.injection.enable": "true", "gregor.fault.rule.f": "disk=fsync topic=orders error=EIO"}
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), "log.flush.interval.messages": "1"}
    broker = Broker(BrokerConfig({**settings, **faults}), ManualClock(START_MS))
    with pytest.raises(ExceptionGroup) as caught:
        await run_and_produce(broker, "orders")
    failure: BaseException = caught.value
    while isinstance(failure, ExceptionGroup):
        (failure,) = failure.exceptions
    assert isinstance(failure, StorageUnavailableError)
    assert "metadata log dir" in str(failure)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_the_path_of_a_file_gives_its_log_directory_topic_and_partition(tmp_path: Path) -> None:
    assert place_of("/data/1/orders-7/00000000000000000000.log") == DiskPlace("/data/1", "orders", 7)
    assert place_of("/data/1/meta.properties") == DiskPlace("/data/1", None, None)


def test_file_operations_fail_only_where_a_disk_rule_applies(tmp_path: Path) -> None:
    faults = FaultInjection(ManualClock())
    files = faults.files
    path = f"{tmp_path}/orders-0/a.log"
    files.make_directory(f"{tmp_path}/orders-0")
    with pytest.raises(FileNotFoundError):
        files.open(path)
    file = files.open(path, create=True)
    assert file.write_at(b"abc", 0) == 3
    file.sync()
    assert file.read_at(3, 0) == b"abc"
    assert len(file.map_table(16)) == 16
    faults.take({"r": "disk=read error=EIO", "s": "disk=fsync error=EIO", "a": "disk=append error=ENOSPC"}, 0)
    for operation in (
        lambda: file.read_at(1, 0),
        file.sync,
        lambda: file.write_at(b"x", 0),
        lambda: file.map_table(32),
        lambda: files.replace(path, b"x"),
        lambda: files.sync_directory(str(tmp_path)),
        lambda: files.open(f"{tmp_path}/new", create=True),
    ):
        with pytest.raises(OSError, match="fault rule") as failure:
            operation()
        assert failure.value.errno in (errno.EIO, errno.ENOSPC)
    assert files.read(path)[:3] == b"abc"
    file.close()


def test_a_clock_offset_moves_the_clock_but_never_before_1970() -> None:
    clock = MovableClock(ManualClock(1000))
    clock.offset_ms = 500
    assert clock.now_ms() == 1500
    clock.offset_ms = -5000
    assert clock.now_ms() == 0


@pytest.mark.parametrize("properties", [{"log.message.timestamp.type": "LogAppendTime"}])
async def test_the_log_append_time_follows_the_clock_offset_of_the_broker(faulty: FaultyBroker) -> None:
    wire = await faulty.connect()
    key = "gregor.fault.clock.offset.ms"
    faulty.broker.services.metadata.set_configs(ResourceType.BROKER, "1", {key: "-3600000"})
    await produce(wire, ORDERS)
    faulty.broker.services.metadata.set_configs(ResourceType.BROKER, "1", {})
    await produce(wire, ORDERS)
    stamps = []
    for since in (0, START_MS):
        partition = ListOffsetsPartition(partition_index=0, timestamp=since)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=[partition])])
        stamps.append((await ask(wire, ApiKey.LIST_OFFSETS, 5, request)).topics[0].partitions[0].timestamp)
    assert stamps == [START_MS - 3_600_000, START_MS]
