"""The end of the tools after SIGTERM: in order, with the exit status of Kafka's tools."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import termios
from array import array
from typing import IO
from uuid import uuid4

import trio

from gregor.client.admin import Admin
from gregor.command_line.asking import TERMINATED
from tests.broker_process import BrokerProcess
from tests.command_line.test_client_tools import run
from tests.waiting import PATIENCE_S, wait_until

GREGOR = [sys.executable, "-m", "gregor.command_line"]


def new_topic(broker: BrokerProcess, *lines: str) -> str:
    topic = f"t-{uuid4().hex}"
    assert run(broker, "topics", "--create", "--topic", topic).code == 0
    assert run(broker, "produce", "--topic", topic, text="".join(f"{line}\n" for line in lines)).code == 0
    return topic


def test_consume_commits_what_it_printed_and_leaves_its_group(broker_process: BrokerProcess) -> None:
    topic, group = new_topic(broker_process, "one", "two", "three"), f"g-{uuid4().hex}"
    command = [*GREGOR, "consume", "--topic", topic, "--from-beginning", "--group", group]
    with subprocess.Popen(
        [*command, "--bootstrap-server", broker_process.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as tool:
        assert tool.stdout is not None
        assert tool.stderr is not None
        assert [tool.stdout.readline() for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
        tool.send_signal(signal.SIGTERM)
        try:
            assert tool.wait(PATIENCE_S) == TERMINATED
        finally:
            tool.kill()
        assert tool.stderr.read() == b"Processed a total of 3 messages\n"

    async def state() -> tuple[str, int]:
        async with Admin(broker_process.bootstrap) as admin:
            committed = await admin.group_offsets(group)
            return (await admin.group_overview(group)).state, committed[topic, 0]

    assert trio.run(state) == ("Empty", 3)


def test_produce_sends_the_lines_that_it_has_read(broker_process: BrokerProcess) -> None:
    topic = new_topic(broker_process, "zero")
    command = [*GREGOR, "produce", "--topic", topic, "--timeout", "600000"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", broker_process.bootstrap], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as tool:
        assert tool.stdin is not None
        tool.stdin.write(b"one\ntwo\n")
        tool.stdin.flush()
        # Once the tool has read the lines, only linger.ms delays them.
        wait_until(lambda: unread_bytes(tool.stdin) == 0)
        tool.send_signal(signal.SIGTERM)
        try:
            assert tool.wait(PATIENCE_S) == TERMINATED
        finally:
            tool.kill()
    lines = run(broker_process, "consume", "--topic", topic, "--from-beginning", "--max-messages", "3").lines
    assert lines == ["zero", "one", "two"]


def unread_bytes(pipe: IO[bytes] | None) -> int:
    """Return the bytes in a pipe that its reader has not taken."""
    assert pipe is not None
    count = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]
