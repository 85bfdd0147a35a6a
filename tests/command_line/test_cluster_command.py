"""`gregor cluster`: one command, several processes, one log, one Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.command_line.local_cluster import ClusterFailedError, LocalCluster
from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.metadata import MetadataRequest
from tests.waiting import PATIENCE_S
from tests.wire import Wire

COMMAND = [sys.executable, "-m", "gregor.command_line", "cluster", "--host", "127.0.0.1", "--port", "0"]
READY = re.compile(r"all 2 brokers are ready: bootstrap\.servers=127\.0\.0\.1:(\d+),127\.0\.0\.1:(\d+)")


@contextlib.contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def lines_until_ready(process: subprocess.Popen[str]) -> tuple[list[str], list[int]]:
    """Return the lines that are printed until both brokers are ready, and their ports."""
    assert process.stdout is not None
    lines: list[str] = []
    while (line := process.stdout.readline()) and (found := READY.search(line)) is None:
        lines.append(line)
    assert line, "".join(lines)
    assert found is not None
    return lines, sorted(map(int, found.groups()))


def test_two_brokers_come_up_together_and_end_with_one_signal(tmp_path: Path) -> None:
    with running([*COMMAND, "--brokers", "2", "--dir", str(tmp_path / "data")]) as process:
        lines, ports = lines_until_ready(process)
        for port in ports:
            with Wire(("127.0.0.1", port)) as wire:
                answer = wire.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
            assert sorted(broker.port for broker in answer.brokers) == ports
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        rest = process.stdout.read()
        assert process.wait(PATIENCE_S) == 0, rest
    assert {line.split(" | ")[0] for line in lines} == {"broker 1", "broker 2"}
    assert rest.count("stopped") == 2
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["broker-1", "broker-2"]


def test_the_other_brokers_keep_running_when_one_is_killed(tmp_path: Path) -> None:
    with running([*COMMAND, "--brokers", "2", "--dir", str(tmp_path)]) as process:
        _, ports = lines_until_ready(process)
        threads = Path(f"/proc/{process.pid}/task").iterdir()
        children = [child for thread in threads for child in (thread / "children").read_text().split()]
        victim = next(child for child in children if "node.id=2" in Path(f"/proc/{child}/cmdline").read_text())
        os.kill(int(victim), signal.SIGKILL)
        assert process.stdout is not None
        while "has ended with status" not in (line := process.stdout.readline()):
            assert line
        assert "status -9; to start it again: gregor serve --override" in line
        answered = 0
        for port in ports:
            with contextlib.suppress(OSError), Wire(("127.0.0.1", port)) as wire:
                wire.ask(ApiKey.METADATA, 12, MetadataRequest(topics=None))
                answered += 1
        assert answered == 1
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait(PATIENCE_S) == 0


def test_a_broker_that_cannot_start_stops_the_cluster(tmp_path: Path) -> None:
    command = [*COMMAND, "--brokers", "2", "--dir", str(tmp_path), "--override", "num.partitions=-7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "num.partitions" in done.stdout
    assert re.search(r"gregor: broker \d has ended", done.stderr)


@pytest.mark.parametrize("override", ["listeners=PLAINTEXT://:1", "node.id=5", "controller.quorum.voters=1@a:1"])
def test_settings_that_differ_between_brokers_cannot_be_overridden(tmp_path: Path, override: str) -> None:
    with pytest.raises(ClusterFailedError, match="each broker of a cluster needs its own value"):
        LocalCluster(2, tmp_path, host="127.0.0.1", first_port=0, overrides=[override])


def test_internal_topics_have_as_many_replicas_as_there_are_brokers(tmp_path: Path) -> None:
    for count, replicas, in_sync in ((1, 1, 1), (2, 2, 2), (3, 3, 2), (5, 3, 2)):
        settings = LocalCluster(count, tmp_path, host="127.0.0.1", first_port=0).settings(1)
        assert f"offsets.topic.replication.factor={replicas}" in settings
        assert f"transaction.state.log.replication.factor={replicas}" in settings
        assert f"transaction.state.log.min.isr={in_sync}" in settings


def test_ports_follow_each_other(tmp_path: Path) -> None:
    cluster = LocalCluster(3, tmp_path, host="127.0.0.1", first_port=19000)
    assert cluster.bootstrap == "127.0.0.1:19000,127.0.0.1:19001,127.0.0.1:19002"
