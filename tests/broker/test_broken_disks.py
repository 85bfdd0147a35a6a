"""`gregor serve` over full disks, and over directories with things in the way: one line, and no topics in part."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v2
from gregor.protocol.records.record import Record
from tests.broker_process import GREGOR, BrokerProcess, running_broker
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

pytestmark = pytest.mark.slow

DISK_BYTES = 8 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Provide an empty file system of `DISK_BYTES`."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted on this machine: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the disk to the last byte."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while file.write(bytes(1 << 12)):
                pass
        except OSError:
            return ballast
    raise AssertionError("the disk is never full")


def produce(wire: Wire, topic: str, value: bytes) -> int:
    return produce_batch(wire, topic, v2.build_batch([Record(0, 1, None, value)]))


def produce_batch(wire: Wire, topic: str, data: bytes) -> int:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=9000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=data)])],
    )
    return int(wire.ask(ApiKey.PRODUCE, 7, request).responses[0].partition_responses[0].error_code)


def create(wire: Wire, topic: str) -> int:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    return int(
        wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=[wanted], timeout_ms=100)).topics[0].error_code
    )


def leader_of(wire: Wire, topic: str) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    partitions = wire.ask(ApiKey.METADATA, 8, request).topics[0].partitions
    return int(partitions[0].leader_id) if partitions else -1


def lines_of_trouble(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.output().splitlines() if " ERROR " in line or "Traceback" in line]


def test_a_full_disk_refuses_writes_and_accepts_them_again_without_a_restart(small_disk: Path, tmp_path: Path) -> None:
    with running_broker(tmp_path, f"log.dirs={small_disk / 'logs'}") as broker, Wire(broker.address) as wire:
        assert create(wire, "t") == ErrorCode.NONE
        assert produce(wire, "t", b"before") == ErrorCode.NONE
        ballast = fill(small_disk)
        codes = {produce(wire, "t", bytes(4096)) for _ in range(20)}
        assert codes == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert len(lines_of_trouble(broker)) == 1
        # A change that a lone broker's controller cannot write is refused, or is made as soon as there is room.
        created = create(wire, "made-on-a-full-disk")
        assert created in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
        if created == ErrorCode.NONE:
            assert produce(wire, "made-on-a-full-disk", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
            assert leader_of(wire, "made-on-a-full-disk") == -1
        ballast.unlink()
        wait_until(lambda: produce(wire, "t", b"after") == ErrorCode.NONE)
        wait_until(lambda: "accepts writes again" in broker.output())
        if created != ErrorCode.NONE:
            assert create(wire, "made-on-a-full-disk") == ErrorCode.NONE
        wait_until(lambda: produce(wire, "made-on-a-full-disk", b"x") == ErrorCode.NONE)
        assert not [line for line in lines_of_trouble(broker) if "Traceback" in line]


def test_a_start_on_a_full_disk_says_one_line(small_disk: Path, tmp_path: Path) -> None:
    fill(small_disk)
    done = serve(f"log.dirs={small_disk / 'logs'}")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "No space left on device" in done.stderr


def test_a_start_on_a_disk_that_has_filled_up_serves_or_says_one_line(small_disk: Path, tmp_path: Path) -> None:
    overrides = (f"log.dirs={small_disk / 'logs'}",)
    with running_broker(tmp_path, *overrides) as broker:
        with Wire(broker.address) as wire:
            assert create(wire, "t") == ErrorCode.NONE
            assert produce(wire, "t", b"before") == ErrorCode.NONE
        broker.kill()
        ballast = fill(small_disk)
        done = serve(*overrides, stop_after_start=True)
        assert "Traceback" not in done.stdout + done.stderr
        assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
        ballast.unlink()
        broker.start_again()
        with Wire(broker.address) as wire:
            wait_until(lambda: produce(wire, "t", b"after") == ErrorCode.NONE)


def test_a_topic_created_without_file_descriptors_becomes_available_once_there_are_some(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker, Wire(broker.address) as wire:
        assert create(wire, "before") == ErrorCode.NONE
        assert produce(wire, "before", b"x") == ErrorCode.NONE
        in_use = max(map(int, os.listdir(f"/proc/{broker.pid}/fd"))) + 1
        limits = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (in_use, limits[1]))
        assert create(wire, "t") == ErrorCode.NONE
        assert produce(wire, "t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
        assert produce(wire, "before", b"x") == ErrorCode.NONE
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, limits)
        wait_until(lambda: produce(wire, "t", b"x") == ErrorCode.NONE)
        assert len(lines_of_trouble(broker)) <= 2, broker.output()


FAILING_FSYNC = (
    "gregor.fault.injection.enable=true",
    "gregor.fault.rule.failing=disk=fsync topic=t error=EIO first=1",
    "log.flush.interval.messages=1",
)


def test_a_batch_whose_fsync_has_failed_is_there_once_after_the_restart(tmp_path: Path) -> None:
    directories = f"log.dirs={tmp_path / 'metadata'},{tmp_path / 'logs'}"
    batch = v2.build_batch([Record(0, 1, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
    with running_broker(tmp_path, directories, *FAILING_FSYNC) as broker, Wire(broker.address) as wire:
        assert create(wire, "t") == ErrorCode.NONE
        assert {produce_batch(wire, "t", batch) for _ in range(3)} == {ErrorCode.KAFKA_STORAGE_ERROR}
    with running_broker(tmp_path, directories) as broker, Wire(broker.address) as wire:
        assert produce_batch(wire, "t", batch) == ErrorCode.NONE
        assert produce(wire, "t", b"next") == ErrorCode.NONE
        request = ListOffsetsRequest(
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(timestamp=-1)])]
        )
        assert wire.ask(ApiKey.LIST_OFFSETS, 5, request).topics[0].partitions[0].offset == 2


def test_a_broker_whose_only_disk_has_failed_ends_with_one_line(tmp_path: Path) -> None:
    with running_broker(tmp_path, *FAILING_FSYNC) as broker:
        with Wire(broker.address) as wire:
            assert create(wire, "t") == ErrorCode.NONE
            with contextlib.suppress(OSError, EOFError):
                produce(wire, "t", b"x")
        assert broker.process.wait(PATIENCE_S) == 1
        assert "Traceback" not in broker.output()
        assert "gregor: Shutdown broker because the metadata log dir" in broker.output()
        assert not (tmp_path / "logs" / ".kafka_cleanshutdown").exists()


def serve(*overrides: str, stop_after_start: bool = False) -> subprocess.CompletedProcess[str]:
    """Run `gregor serve` until it fails, or stop it once it has started."""
    command = [sys.executable, *GREGOR, "serve", "--override", "listeners=PLAINTEXT://127.0.0.1:0"]
    for setting in overrides:
        command += ["--override", setting]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told: list[str] = []
    if stop_after_start:
        for line in process.stdout:
            told.append(line)
            if "started" in line:
                process.terminate()
                break
    out, err = process.communicate(timeout=100)
    return subprocess.CompletedProcess(command, process.returncode, "".join(told) + out, err)


@pytest.mark.parametrize("in_the_way", ["a file named t-0", "a directory named as a segment"])
def test_a_partition_whose_files_are_blocked_is_offline_and_the_others_are_served(
    tmp_path: Path, in_the_way: str
) -> None:
    with running_broker(tmp_path) as broker:
        with Wire(broker.address) as wire:
            for topic in ("t", "other"):
                assert create(wire, topic) == ErrorCode.NONE
                assert produce(wire, topic, b"x") == ErrorCode.NONE
        assert broker.stop() == 0
        partition = tmp_path / "logs" / "t-0"
        kept = tmp_path / "kept"
        if in_the_way == "a file named t-0":
            partition.rename(kept)
            partition.write_text("")
        else:
            (partition / f"{5:020d}.log").mkdir()
        broker.start_again()
        with Wire(broker.address) as wire:
            assert produce(wire, "other", b"x") == ErrorCode.NONE
            assert produce(wire, "t", b"x") == ErrorCode.KAFKA_STORAGE_ERROR
            assert leader_of(wire, "t") == -1
            assert "Traceback" not in broker.output()
            if in_the_way == "a file named t-0":
                partition.unlink()
                kept.rename(partition)
            else:
                (partition / f"{5:020d}.log").rmdir()
            wait_until(lambda: produce(wire, "t", b"x") == ErrorCode.NONE)


def test_an_unopenable_metadata_log_ends_the_start_with_one_line_and_is_not_replaced(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        assert broker.stop() == 0
    segment = tmp_path / "logs" / "__cluster_metadata-0" / f"{0:020d}.log"
    segment.rename(tmp_path / "kept")
    segment.mkdir()
    done = serve(f"log.dirs={tmp_path / 'logs'}")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stdout
    assert list(segment.iterdir()) == []


def test_partitions_of_an_unmounted_log_directory_are_offline_and_not_created_again(tmp_path: Path) -> None:
    first, second, away = (tmp_path / name for name in ("first", "second", "away"))
    log_dirs = f"log.dirs={first},{second}"
    names = [f"topic-{number}" for number in range(4)]
    with running_broker(tmp_path / "broker", log_dirs) as broker, Wire(broker.address) as wire:
        for name in names:
            assert create(wire, name) == ErrorCode.NONE
            assert produce(wire, name, b"kept") == ErrorCode.NONE
    in_second = [name for name in names if (second / f"{name}-0").exists()]
    assert 0 < len(in_second) < len(names)
    second.rename(away)

    for dirs in (f"log.dirs={first}", log_dirs):
        with running_broker(tmp_path / "broker", dirs) as broker, Wire(broker.address) as wire:
            for name in names:
                is_away = name in in_second
                assert leader_of(wire, name) == (-1 if is_away else 1)
                refused = ErrorCode.KAFKA_STORAGE_ERROR if is_away else ErrorCode.NONE
                assert produce(wire, name, b"more") == refused

    shutil.rmtree(second)
    away.rename(second)
    with running_broker(tmp_path / "broker", log_dirs) as broker, Wire(broker.address) as wire:
        for name in names:
            assert leader_of(wire, name) == 1
            assert produce(wire, name, b"last") == ErrorCode.NONE
    told = [line for line in broker.output().splitlines() if "log directory is missing" in line]
    assert len(told) == 2
    assert all(f"{name}-0" in line for name in in_second for line in told)
