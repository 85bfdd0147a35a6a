"""The log of a gateway whose upstream cannot be reached: the reason and what to change, after the first attempt."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from tests.free_ports import free_address
from tests.gateway.kafka_4 import gateway_before
from tests.waiting import wait_until

LOGGER = "gregor.gateway.reachability"
ONE_ATTEMPT = {"gregor.gateway.metadata.refresh.ms": "3600000"}
CHECK_ADDRESS = "Check gregor.gateway.upstream (--upstream HOST:PORT)"


@contextmanager
def refused_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def unknown_host() -> Iterator[str]:
    yield "no-such-host.invalid:9092"


@contextmanager
def silent_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"127.0.0.1:{silent.getsockname()[1]}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize(
    ("upstream", "reason"),
    [
        (refused_port, "Connection refused"),
        (unknown_host, "cannot connect to no-such-host.invalid:9092: "),
        (silent_port, "no answer yet"),
    ],
)
def test_the_first_attempt_says_why_and_which_key_to_change(
    upstream: Callable[[], AbstractContextManager[str]], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A user need not wait for a second attempt."""
    with upstream() as address, gateway_before(address, ONE_ATTEMPT):
        wait_until(lambda: bool(warnings(caplog)))
    (said,) = warnings(caplog)
    assert reason in said
    assert address in said
    assert CHECK_ADDRESS in said


def test_zookeepers_nodes_without_metadata_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log does not grow with each attempt of an outage."""
    host, port = free_address()
    settings = {
        "gregor.gateway.metadata.refresh.ms": "100",
        "gregor.gateway.upstream.timeout.ms": "100",
        "gregor.zookeeper.listeners": f"zookeeper://{host}:{port}",
    }
    name = "gregor.gateway.zookeeper"

    def levels() -> list[str]:
        return [record.levelname for record in caplog.records if record.name == name]

    with caplog.at_level("DEBUG", name), refused_port() as address, gateway_before(address, settings):
        wait_until(lambda: len(levels()) >= 3)
    assert levels()[:3] == ["WARNING", "DEBUG", "DEBUG"]
