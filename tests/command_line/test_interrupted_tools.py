"""The end of the tools after an interrupt, or after an error of their input or output."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO
from uuid import uuid4

import pytest
import trio

from gregor import command_line
from gregor.command_line.asking import run_client
from tests.broker_process import BrokerProcess
from tests.command_line.test_client_tools import run
from tests.interruptible import interruptible, raised_interrupts
from tests.waiting import PATIENCE_S

GREGOR = [sys.executable, "-m", "gregor.command_line"]
PRINTING = (("topics", "--list"), ("config",), ("completion", "bash"))
"""Commands that print something, with and without a broker."""


def consumed(broker: BrokerProcess, topic: str, count: int) -> list[str]:
    return run(broker, "consume", "--topic", topic, "--from-beginning", "--max-messages", str(count)).lines


def test_ctrl_c_ends_produce_at_an_open_input_and_keeps_its_lines(broker_process: BrokerProcess) -> None:
    topic = f"t-{uuid4().hex}"
    assert run(broker_process, "topics", "--create", "--topic", topic).code == 0
    command = [*GREGOR, "produce", "--topic", topic, "--bootstrap-server", broker_process.bootstrap]
    with interruptible(command, stdin=subprocess.PIPE) as tool:
        assert tool.stdin is not None
        tool.stdin.write(b"one\r\ntwo\n")
        tool.stdin.flush()
        assert consumed(broker_process, topic, 2) == ["one", "two"]
        tool.send_signal(signal.SIGINT)
        try:
            assert tool.wait(PATIENCE_S) == command_line.INTERRUPTED
        finally:
            tool.kill()


def test_lines_before_a_malformed_line_are_produced(broker_process: BrokerProcess) -> None:
    topic = f"t-{uuid4().hex}"
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    sent = run(broker_process, "produce", "--topic", topic, *keyed, text="k:one\nno key\n")
    assert (sent.code, "No key separator found on line number 2" in sent.err) == (1, True)
    assert consumed(broker_process, topic, 1) == ["one"]


def printing(words: Sequence[str], broker: BrokerProcess, output: IO[bytes], buffered: str) -> tuple[int, bytes]:
    """Return the exit code and the errors of a command whose output goes to ``output``."""
    done = subprocess.run(
        [*GREGOR, *words],
        env=os.environ | {"PYTHONUNBUFFERED": buffered, "GREGOR_BOOTSTRAP_SERVER": broker.bootstrap},
        stdout=output,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize(("words", "buffered"), [*itertools.product(PRINTING, ("", "1"))])
def test_a_full_disk_behind_standard_output_is_reported_in_one_line(
    broker_process: BrokerProcess, words: Sequence[str], buffered: str
) -> None:
    assert run(broker_process, "topics", "--create", "--topic", f"t-{uuid4().hex}").code == 0
    with Path("/dev/full").open("wb", buffering=0) as full:
        assert printing(words, broker_process, full, buffered) == (1, b"Error: No space left on device\n")


@pytest.mark.parametrize(("words", "buffered"), [*itertools.product(PRINTING, ("", "1"))])
def test_a_reader_of_the_output_that_ends_first_is_no_error(
    broker_process: BrokerProcess, words: Sequence[str], buffered: str
) -> None:
    assert run(broker_process, "topics", "--create", "--topic", f"t-{uuid4().hex}").code == 0
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as unread:
        assert printing(words, broker_process, unread, buffered) == (0, b"")


def test_ctrl_c_while_modules_are_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str, _package: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert command_line.main(["topics", "--list"]) == command_line.INTERRUPTED


@pytest.fixture
def usual_interrupts() -> Iterator[None]:
    with raised_interrupts():
        yield


@pytest.mark.usefixtures("usual_interrupts")
def test_ctrl_c_does_not_end_a_background_task_in_the_middle() -> None:
    """A producer whose sender is interrupted could not send the lines that were read before."""
    steps = []

    async def background() -> None:
        signal.raise_signal(signal.SIGINT)
        steps.append("the background task goes on")

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(background)
            try:
                await trio.sleep_forever()
            except KeyboardInterrupt:
                steps.append("the tool ends")
                raise

    assert run_client(work, interrupts_only_waits=True) == command_line.INTERRUPTED
    assert steps == ["the background task goes on", "the tool ends"]
