"""`gregor gateway` that cannot start: one line that says what to change."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from tests.broker_process import GREGOR


def gateway(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run([sys.executable, *GREGOR, "gateway", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "gregor: gregor.gateway.upstream names no broker: set it, or give --upstream HOST:PORT"),
        (("--upstream", "kafka:x"), "gregor: gregor.gateway.upstream: bootstrap_servers must be HOST:PORT"),
        (
            ("--upstream", "a:1", "--override", "gregor.gateway.broker.ports=9-8"),
            "gregor: gregor.gateway.broker.ports=9-8",
        ),
        (("--upstream", "a:1", "--override", "gregor.gateway.broker.ports=x"), "gregor: Invalid value x"),
        (
            ("--upstream", "a:1", "--override", "gregor.gateway.upstream.sasl.mechansm=PLAIN"),
            "gregor: gregor.gateway.upstream.*: unknown key 'sasl.mechansm'; did you mean 'sasl.mechanism'?",
        ),
        (
            ("--upstream", "a:1", "--override", "gregor.gateway.upstream.bootstrap.servers=b:2"),
            "gregor: gregor.gateway.upstream.bootstrap.servers has no effect: set gregor.gateway.upstream",
        ),
        (
            ("--upstream", "a:1", "--override", "gregor.gateway.upstream.request.timeout.ms=5"),
            "gregor: gregor.gateway.upstream.request.timeout.ms has no effect: set gregor.gateway.upstream.timeout.ms",
        ),
        (
            ("--upstream", "a:1", "--override", "gregor.gateway.upstream.client.id=b"),
            "gregor: gregor.gateway.upstream.client.id has no effect: of the keys of Kafka's clients",
        ),
    ],
)
def test_invalid_settings_are_reported_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    """Exit status 1, and no traceback."""
    ended = gateway(*arguments)
    assert ended.returncode == 1
    assert ended.stderr.startswith(said)
    assert len(ended.stderr.splitlines()) == 1


def test_a_port_in_use_is_reported_in_one_line() -> None:
    """The message is that of `gregor serve`."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listener = f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"
        ended = gateway("--upstream", "127.0.0.1:1", "--override", f"listeners={listener}")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"gregor: cannot listen on {listener}: Address already in use; change listeners")
    assert len(ended.stderr.splitlines()) == 1


def test_the_port_of_a_broker_in_use_is_reported_with_its_key() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("--override", "listeners=PLAINTEXT://127.0.0.1:0")
        ended = gateway(
            "--upstream", "127.0.0.1:1", *options, "--override", f"gregor.gateway.broker.ports={port}-{port}"
        )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"gregor: cannot listen on PLAINTEXT://127.0.0.1:{port}: Address already in use;")
    assert "change gregor.gateway.broker.ports" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
