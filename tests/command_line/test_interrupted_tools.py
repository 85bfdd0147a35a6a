"""How the tools end when they are interrupted, or when their input or output fails."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from gregor import command_line
from tests.broker_process import BrokerProcess
from tests.command_line.test_client_tools import run
from tests.waiting import PATIENCE_S

GREGOR = [sys.executable, "-m", "gregor.command_line"]


def consumed(broker: BrokerProcess, topic: str, count: int) -> list[str]:
    return run(broker, "consume", "--topic", topic, "--from-beginning", "--max-messages", str(count)).lines


def test_ctrl_c_ends_produce_at_an_open_input_and_keeps_its_lines(broker_process: BrokerProcess) -> None:
    topic = f"t-{uuid4().hex}"
    assert run(broker_process, "topics", "--create", "--topic", topic).code == 0
    command = [*GREGOR, "produce", "--topic", topic, "--bootstrap-server", broker_process.bootstrap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        assert tool.stdin is not None
        tool.stdin.write(b"one\r\ntwo\n")
        tool.stdin.flush()
        assert consumed(broker_process, topic, 2) == ["one", "two"]
        tool.send_signal(signal.SIGINT)
        try:
            assert tool.wait(PATIENCE_S) == command_line.INTERRUPTED
        finally:
            tool.kill()


def test_a_line_that_cannot_be_read_takes_back_none_before_it(broker_process: BrokerProcess) -> None:
    topic = f"t-{uuid4().hex}"
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    sent = run(broker_process, "produce", "--topic", topic, *keyed, text="k:one\nno key\n")
    assert (sent.code, "No key separator found on line number 2" in sent.err) == (1, True)
    assert consumed(broker_process, topic, 1) == ["one"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(broker_process: BrokerProcess) -> None:
    assert run(broker_process, "topics", "--create", "--topic", f"t-{uuid4().hex}").code == 0
    command = [*GREGOR[1:], "topics", "--list", "--bootstrap-server", broker_process.bootstrap]
    with Path("/dev/full").open("wb", buffering=0) as full:
        done = subprocess.run(
            [sys.executable, "-u", *command], stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"Error: No space left on device\n")


def test_ctrl_c_while_modules_are_imported_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_name: str, _package: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert command_line.main(["topics", "--list"]) == command_line.INTERRUPTED
