"""`gregor.testing`: brokers from Python, and the fixtures of the pytest plugin in tests of each kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gregor.client.admin import Admin
from gregor.client.consumer.consumer import Consumer
from gregor.testing import Broker, BrokerFailedError
from tests.waiting import PATIENCE_S


async def value_in(broker: Broker, topic: str) -> bytes | None:
    async with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        (record,) = await consumer.poll()
        return record.value


def is_there(path: str) -> bool:
    return Path(path).exists()


@pytest.mark.parametrize("runs_in", ["thread", "process"])
async def test_a_broker_has_its_topics_and_records(tmp_path: Path, runs_in: str) -> None:
    seed = tmp_path / "orders.jsonl"
    seed.write_text('{"value": "first"}\n')
    broker = Broker(topics=["users:2"], load=[seed], runs_in="thread" if runs_in == "thread" else "process")
    with broker:
        assert await value_in(broker, "orders") == b"first"
        async with Admin(broker.bootstrap_servers) as admin:
            (users,) = await admin.describe_topics(["users"])
            assert len(users.partitions) == 2
            ((place,),) = (await admin.describe_log_dirs()).values()
        with pytest.raises(BrokerFailedError, match="runs already"):
            broker.start()
    assert not is_there(place.log_dir)
    with pytest.raises(BrokerFailedError, match="does not run"):
        _ = broker.bootstrap_servers


def test_a_thread_can_be_started_again() -> None:
    broker = Broker(runs_in="thread")
    for _ in range(2):
        with broker:
            assert broker.port > 0


@pytest.mark.parametrize("runs_in", ["thread", "process"])
def test_a_broker_that_cannot_start_says_why(tmp_path: Path, runs_in: str) -> None:
    broker = Broker(load=[tmp_path / "missing.jsonl"], runs_in="thread" if runs_in == "thread" else "process")
    with pytest.raises(BrokerFailedError, match=r"missing\.jsonl: No such file or directory"):
        broker.start()
    broker.stop()


TESTS_OF_A_USER = """
import asyncio
import socket

import pytest


def connects(broker):
    host, _, port = broker.bootstrap_servers.partition(":")
    with socket.create_connection((host, int(port)), 10):
        return True


def test_plain(gregor_broker, gregor_topics):
    assert connects(gregor_broker)
    assert gregor_topics(partitions=3, prefix="orders").startswith("orders-")


def test_asyncio(gregor_broker, gregor_topics):
    async def main():
        assert gregor_topics() != gregor_topics()
        assert connects(gregor_broker)
    asyncio.run(main())


async def test_trio(gregor_broker, gregor_topics):
    from gregor.client.admin import Admin
    name = gregor_topics(**{"cleanup.policy": "compact"})
    async with Admin(gregor_broker.bootstrap_servers) as admin:
        assert {"seeded", name} <= set(await admin.list_topics())
"""
SETTINGS_OF_A_USER = """
[pytest]
trio_mode = true
gregor_topics =
    seeded:2
gregor_settings =
    num.partitions=2
"""


def test_the_fixtures_serve_tests_of_each_kind_in_two_workers(tmp_path: Path) -> None:
    (tmp_path / "test_user.py").write_text(TESTS_OF_A_USER)
    (tmp_path / "pytest.ini").write_text(SETTINGS_OF_A_USER)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, b"3 passed" in done.stdout) == (0, True), done.stdout.decode()


async def test_the_plugin_serves_our_own_tests(gregor_topics: object, gregor_broker: Broker) -> None:
    assert callable(gregor_topics)
    name = gregor_topics(partitions=2)
    async with Admin(gregor_broker.bootstrap_servers) as admin:
        (topic,) = await admin.describe_topics([name])
    assert len(topic.partitions) == 2
