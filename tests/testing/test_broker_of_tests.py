"""`gregor.testing`: brokers from Python, and the fixtures of the pytest plugin in tests of each kind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gregor.client.admin import Admin
from gregor.client.consumer.consumer import Consumer
from gregor.client.producer.producer import Producer
from gregor.protocol.errors import BrokerError
from gregor.testing import Broker, BrokerFailedError
from tests.waiting import PATIENCE_S, wait_until


async def value_in(broker: Broker, topic: str) -> bytes | None:
    async with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        (record,) = await consumer.poll()
        return record.value


def is_there(path: str) -> bool:
    return Path(path).exists()


@pytest.mark.parametrize("runs_in", ["thread", "process"])
async def test_a_broker_starts_with_the_given_topics_and_seed_records(tmp_path: Path, runs_in: str) -> None:
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


def test_a_broker_in_a_thread_can_be_started_again() -> None:
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


async def answers_with(broker: Broker, topic: str) -> str:
    """Return how a Produce is answered by a producer that does not retry: ok, or the name of the error."""
    async with Producer(broker.bootstrap_servers, retries=0, enable_idempotence=False) as producer:
        try:
            await (await producer.send(topic, b"v"))
        except BrokerError as error:
            return error.code.name
    return "ok"


async def test_a_fault_applies_only_within_its_with_block(
    gregor_broker: Broker, gregor_topics: Callable[..., str]
) -> None:
    topic, other = gregor_topics(), gregor_topics()
    with gregor_broker.fault(f"api=Produce topic={topic} error=REQUEST_TIMED_OUT"):
        assert await answers_with(gregor_broker, topic) == "REQUEST_TIMED_OUT"
        with gregor_broker.fault(api=["Produce", "Fetch"], topic=other, error="INVALID_RECORD", at="request"):
            assert await answers_with(gregor_broker, other) == "INVALID_RECORD"
        assert await answers_with(gregor_broker, other) == "ok"
    assert await answers_with(gregor_broker, topic) == "ok"


def test_a_fault_that_cannot_be_read_is_refused(gregor_broker: Broker) -> None:
    with pytest.raises(ValueError, match="did you mean Produce"), gregor_broker.fault("api=Produc stall"):
        pytest.fail("the rule is wrong")
    with pytest.raises(ValueError, match="one text, or its words"), gregor_broker.fault("api=Produce", stall=True):
        pytest.fail("the rule is given twice")


async def test_the_clock_is_shifted_for_a_block(gregor_broker: Broker, gregor_topics: Callable[..., str]) -> None:
    topic = gregor_topics(**{"message.timestamp.type": "LogAppendTime"})
    with gregor_broker.clock(timedelta(days=-400)):
        assert await answers_with(gregor_broker, topic) == "ok"
    assert await answers_with(gregor_broker, topic) == "ok"
    async with Consumer(gregor_broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        records = [*await consumer.poll()]
        while len(records) < 2:
            records += await consumer.poll()
    shifted, right = (datetime.fromtimestamp(record.timestamp / 1000, UTC) for record in records)
    assert timedelta(days=399) < right - shifted < timedelta(days=401)


async def test_reset_leaves_no_topic() -> None:
    with Broker(topics=["orders:3"], runs_in="thread") as broker:
        broker.reset(recreate=True)
        async with Admin(broker.bootstrap_servers) as admin:
            assert await admin.list_topics() == ["orders"]
            broker.reset()
            assert await admin.list_topics() == []


STARTS_A_BROKER = """
import os, sys
from gregor.testing import Broker
broker = Broker().start()
print(broker._running._process.pid, flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(3)", "sys.exit(0)"])
def test_a_broker_stops_and_deletes_its_files_when_its_parent_process_ends(tmp_path: Path, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTS_A_BROKER.format(end=end)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    pid = int(done.stdout)
    wait_until(lambda: not is_there(f"/proc/{pid}") or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")
    wait_until(lambda: not list(tmp_path.iterdir()))


TESTS_OF_A_USER = """
import asyncio
import socket
from datetime import timedelta

import pytest


def connects(broker):
    host, _, port = broker.bootstrap_servers.partition(":")
    with socket.create_connection((host, int(port)), 10):
        return True


def test_plain(gregor_broker, gregor_topics):
    assert connects(gregor_broker)
    assert gregor_topics(partitions=3, prefix="orders").startswith("orders-")


def rules(broker):
    import trio
    from gregor.client.admin import Admin
    from gregor.command_line.fault_rules import faults_of

    async def main():
        async with Admin(broker.bootstrap_servers) as admin:
            return sorted(entry.value for entry in await faults_of(admin, "1"))
    return trio.run(main)


def test_faults_and_clock(gregor_broker, gregor_faults, gregor_clock):
    gregor_faults("api=Produce delay=20ms")
    gregor_faults(api="Fetch", error="REQUEST_TIMED_OUT", first=1)
    gregor_clock(timedelta(hours=-1))
    assert len(rules(gregor_broker)) == 3
    assert "-3600000" in rules(gregor_broker)


def test_none_of_it_lasts(gregor_broker):
    assert rules(gregor_broker) == []


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
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text(TESTS_OF_A_USER)
    (tmp_path / "pytest.ini").write_text(SETTINGS_OF_A_USER)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "2",
        "--dist",
        "loadfile",
        "-p",
        "no:cacheprovider",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, b"10 passed" in done.stdout) == (0, True), done.stdout.decode()


@pytest.mark.parametrize(
    ("line", "kind", "code", "text"),
    [
        ("", "BrokerThread", 0, "1 passed"),
        ("gregor_runs_in = thread", "BrokerThread", 0, "1 passed"),
        ("gregor_runs_in = process", "BrokerProcess", 0, "1 passed"),
        ("gregor_runs_in = container", "", 1, "gregor_runs_in: write process or thread, not 'container'"),
    ],
)
def test_gregor_runs_in_selects_a_broker_thread_or_process(
    tmp_path: Path, line: str, kind: str, code: int, text: str
) -> None:
    check = f"assert type(gregor_broker._running).__name__ == {kind!r}"
    (tmp_path / "test_user.py").write_text(f"def test_plain(gregor_broker):\n    {check}\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{line}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (done.returncode, text in done.stdout) == (code, True), done.stdout


async def test_the_plugin_serves_our_own_tests(gregor_topics: object, gregor_broker: Broker) -> None:
    assert callable(gregor_topics)
    name = gregor_topics(partitions=2)
    async with Admin(gregor_broker.bootstrap_servers) as admin:
        (topic,) = await admin.describe_topics([name])
    assert len(topic.partitions) == 2
