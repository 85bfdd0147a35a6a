"""DescribeLogDirs and AlterReplicaLogDirs: the places of replicas, and moves during writes (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from gregor.broker.api.handlers.log_directories import handle_alter_replica_log_dirs, handle_describe_log_dirs
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from gregor.protocol.messages.describe_log_dirs import DescribeLogDirsPartition, DescribeLogDirsRequest
from tests.asking import Asking
from tests.broker.api.log_requests import batch, fetch, fetched, produce, produced, values_of
from tests.waiting import PATIENCE_S

TOPIC = "a"


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    return [str(tmp_path / name) for name in ("one", "two")]


@pytest.fixture
def properties(directories: list[str]) -> dict[str, str]:
    return {"log.dirs": ",".join(directories)}


async def moved(asking: Asking, path: str, topic: str = TOPIC) -> ErrorCode:
    """Return AlterReplicaLogDirs' error for partition 0."""
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)])
    response = await asking.ask(handle_alter_replica_log_dirs, request)
    return ErrorCode(response.results[0].partitions[0].error_code)


async def described(asking: Asking) -> dict[str, list[DescribeLogDirsPartition]]:
    """Return the partitions of the topic by directory."""
    results = (await asking.ask(handle_describe_log_dirs, DescribeLogDirsRequest(topics=None))).results
    return {
        result.log_dir: [partition for topic in result.topics for partition in topic.partitions if topic.name == TOPIC]
        for result in results
    }


async def until(condition: Callable[[], bool]) -> None:
    """Let the broker work until then."""
    with trio.fail_after(PATIENCE_S):
        while not condition():
            await trio.lowlevel.checkpoint()


async def test_describe_log_dirs_returns_partitions_and_disk_sizes(asking: Asking, directories: list[str]) -> None:
    asking.broker.services.metadata.create_topic(TOPIC, partitions=2)
    results = (await asking.ask(handle_describe_log_dirs, DescribeLogDirsRequest(topics=None))).results
    assert [result.log_dir for result in results] == directories
    found = [
        (topic.name, partition.partition_index) for r in results for topic in r.topics for partition in topic.partitions
    ]
    assert sorted(found) == [(TOPIC, 0), (TOPIC, 1)]
    assert all(result.total_bytes >= result.usable_bytes > 0 for result in results)


async def test_a_partition_moves_to_another_log_directory_during_writes(asking: Asking, directories: list[str]) -> None:
    asking.broker.services.metadata.create_topic(TOPIC)
    for number in range(20):
        await produced(asking, produce(batch(b"%d" % number + bytes(60_000)), TOPIC))
    logs = asking.broker.services.logs
    home = logs.directory_of(TOPIC, 0)
    assert home is not None
    (there,) = set(directories) - {home.path}
    assert await moved(asking, there) == ErrorCode.NONE
    (future,) = (await described(asking))[there]
    assert (future.is_future_key, future.offset_lag) == (True, 20)
    await produced(asking, produce(batch(b"meanwhile"), TOPIC))
    await until(lambda: logs.directory_of(TOPIC, 0) is not home)
    await produced(asking, produce(batch(b"afterwards"), TOPIC))
    shown = await described(asking)
    assert shown[home.path] == []
    assert [(partition.is_future_key, partition.offset_lag) for partition in shown[there]] == [(False, 0)]
    (read,) = await fetched(asking, fetch((0, 20), topic=TOPIC))
    assert await values_of(read) == [(20, b"meanwhile"), (21, b"afterwards")]
    (read,) = await fetched(asking, fetch((0, 7), topic=TOPIC))
    assert (await values_of(read))[0] == (7, b"7" + bytes(60_000))


async def test_a_move_back_to_the_present_log_directory_cancels_the_move(
    asking: Asking, directories: list[str]
) -> None:
    asking.broker.services.metadata.create_topic(TOPIC)
    await produced(asking, produce(batch(b"a"), TOPIC))
    home = asking.broker.services.logs.directory_of(TOPIC, 0)
    assert home is not None
    (there,) = set(directories) - {home.path}
    assert await moved(asking, there) == ErrorCode.NONE
    assert await moved(asking, home.path) == ErrorCode.NONE
    assert asking.broker.services.logs.move_of(TOPIC, 0) is None
    assert (await described(asking))[there] == []
    await trio.testing.wait_all_tasks_blocked()
    assert asking.broker.services.logs.directory_of(TOPIC, 0) is home


async def test_a_topic_may_be_deleted_while_it_moves(asking: Asking, directories: list[str]) -> None:
    asking.broker.services.metadata.create_topic(TOPIC)
    await produced(asking, produce(batch(b"a"), TOPIC))
    for path in directories:
        assert await moved(asking, path) == ErrorCode.NONE
    asking.broker.services.metadata.delete_topic(TOPIC)
    await trio.testing.wait_all_tasks_blocked()
    assert await described(asking) == {path: [] for path in directories}


async def test_alter_replica_log_dirs_refuses_unknown_topics_and_directories(
    asking: Asking, directories: list[str]
) -> None:
    asking.broker.services.metadata.create_topic(TOPIC)
    assert await moved(asking, directories[0], "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await moved(asking, "/nowhere") == ErrorCode.LOG_DIR_NOT_FOUND
