"""First steps of a user: no broker, an unknown topic, a mistyped key, and commands that leave no files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from gregor.broker.config import BrokerConfig
from tests.broker_process import BrokerProcess
from tests.command_line.test_client_tools import run
from tests.free_ports import free_address
from tests.interruptible import interruptible
from tests.waiting import PATIENCE_S

ASKING = [
    ("topics", "--list"),
    ("consume", "--topic", "t"),
    ("produce", "--topic", "t"),
    ("clients",),
    ("groups", "--list"),
    ("mirror", "--topics", "t"),
    ("perf-test", "producer", "--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1"),
]


@pytest.mark.parametrize("words", ASKING, ids=lambda words: words[0])
def test_tools_that_wait_for_a_broker_print_the_reason(words: tuple[str, ...]) -> None:
    address = f"localhost:{free_address()[1]}"
    servers = ["--from", address, "--to", address] if words[0] == "mirror" else ["--bootstrap-server", address]
    command = [sys.executable, "-m", "gregor.command_line", *words, *servers]
    with interruptible(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as tool:
        assert tool.stderr is not None
        assert tool.stderr.readline().decode() == f"waiting for {address}: connection refused\n"
        tool.send_signal(signal.SIGINT)
        tool.communicate(timeout=PATIENCE_S)


def test_a_tool_without_a_broker_ends_with_a_reason() -> None:
    address = f"localhost:{free_address()[1]}"
    listed = run(None, "topics", "--list", "--bootstrap-server", address)
    assert (listed.code, listed.out) == (1, "")
    assert listed.err.splitlines() == [
        f"waiting for {address}: connection refused",
        f"Error: no broker within 10 s at {address}: connection refused",
    ]


def test_a_topic_that_does_not_exist_is_not_consumed(broker_process: BrokerProcess) -> None:
    name = f"missing-{uuid4().hex}"
    consumed = run(broker_process, "consume", "--topic", name, "--timeout-ms", "100")
    assert consumed.code == 1
    assert f"Error: {name} does not exist (UNKNOWN_TOPIC_OR_PARTITION)" in consumed.err
    assert name not in run(broker_process, "topics", "--list").lines, "consuming creates no topic"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partition", "7"), "has no partition 7: it has 1, from 0 on"),
        (("--offset", "3"), "--offset needs --partition"),
        (("--partition", "0", "--offset", "-5"), "--offset must be a number, earliest or latest, not '-5'"),
    ],
)
def test_invalid_partitions_and_offsets_are_refused(
    broker_process: BrokerProcess, options: tuple[str, ...], message: str
) -> None:
    name = f"t-{uuid4().hex}"
    assert run(broker_process, "topics", "--create", "--topic", name).code == 0
    consumed = run(broker_process, "consume", "--topic", name, *options)
    assert (consumed.code, message in consumed.err) == (1, True), consumed.err


def test_an_invalid_topic_pattern_is_refused(broker_process: BrokerProcess) -> None:
    consumed = run(broker_process, "consume", "--include", "a(")
    assert consumed.code == 1
    assert "Error: --include is not a regular expression" in consumed.err


@pytest.mark.parametrize("name", ["a b", "..", "x" * 250])
def test_an_invalid_topic_name_is_refused(broker_process: BrokerProcess, name: str) -> None:
    produced = run(broker_process, "produce", "--topic", name, text="a line\n")
    assert produced.code == 1
    assert produced.err == f"Error: {name!r} cannot be the name of a topic (INVALID_TOPIC_EXCEPTION)\n"


def test_consuming_without_a_group_creates_no_group_and_no_internal_topic(broker_process: BrokerProcess) -> None:
    name = f"t-{uuid4().hex}"
    assert run(broker_process, "produce", "--topic", name, text="a\nb\n").code == 0
    consumed = run(broker_process, "consume", "--topic", name, "--from-beginning", "--max-messages", "2")
    assert (consumed.code, consumed.lines) == (0, ["a", "b"])
    found = run(broker_process, "consume", "--include", f"{name[:-1]}.", "--from-beginning", "--timeout-ms", "3000")
    assert found.lines == ["a", "b"]
    assert run(broker_process, "topics", "--list").lines.count("__consumer_offsets") == 0
    assert run(broker_process, "groups", "--list").lines == []


def test_the_tools_send_their_name_as_client_id(broker_process: BrokerProcess) -> None:
    assert run(broker_process, "produce", "--topic", f"t-{uuid4().hex}", text="a\n").code == 0
    assert "gregor-produce" in run(broker_process, "clients").out


def test_a_key_that_does_not_exist_is_an_error() -> None:
    assert run(None, "config", "num.partitions").code == 0
    unknown = run(None, "config", "num.partitons")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == "gregor: no configuration has num.partitons in its name; did you mean num.partitions?\n"
    accepted = run(None, "config", "num.io.threads")
    assert (accepted.code, accepted.err) == (1, "gregor: num.io.threads: accepted for Kafka's sake, without effect\n")


def test_ignored_lines_of_a_properties_file_are_named(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# a comment\nnum.partitions=\\\n  2\nwhatever this is\n")
    config = BrokerConfig.load(path, ["num.partitons=3"])
    assert config.num_partitions == 2
    assert config.notices()[1] == [
        "--override: unknown configuration num.partitons is ignored; did you mean num.partitions?",
        f"{path} line 4: unknown configuration whatever is ignored",
    ]
    path.write_text("a=1\nb=\\u12\n")
    served = run(None, "serve", str(path))
    assert (served.code, "line 2: Malformed" in served.err) == (1, True), os.linesep + served.err


@pytest.mark.parametrize("module", ["gregor", "gregor.command_line"])
def test_the_command_runs_as_a_module(module: str) -> None:
    shown = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("gregor ")
