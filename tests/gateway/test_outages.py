"""Outages of upstream: before the gateway starts, killed, hanging; clients always get an answer or a disconnect."""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.metadata import MetadataRequest
from tests.broker_process import start_broker
from tests.gateway.kafka_4 import gateway_before
from tests.gateway.test_old_versions import fetch, message_set, new_topic, produce, records_of
from tests.waiting import PATIENCE_S, wait_until
from tests.wire import Wire

QUICK = {"gregor.gateway.metadata.refresh.ms": "100", "gregor.gateway.upstream.timeout.ms": "1000"}


def served(address: tuple[str, int]) -> str:
    """Return a new topic with a record, once the gateway serves clients again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Wire(address) as wire:
                topic = new_topic(wire)
                while code := produce(wire, 0, topic, message_set(0, 1)).error_code:
                    assert ErrorCode(code) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    time.sleep(0.05)
                return topic
        except (OSError, AssertionError):
            assert time.monotonic() < deadline, "the gateway does not serve clients again"
            time.sleep(0.1)


def test_a_gateway_without_upstream_ends_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients are disconnected and do not hang; the log names the outage and not each of their attempts.

    As soon as upstream is there, the same gateway serves clients.
    """
    broker = start_broker(tmp_path)
    try:
        broker.stop()
        with gateway_before(broker.bootstrap, QUICK) as gateway:
            address = ("127.0.0.1", gateway.listening[0].port)
            wait_until(lambda: "Connection refused" in caplog.text)
            with caplog.at_level("INFO", "gregor.broker.server.connection"):
                for _ in range(2):
                    with Wire(address) as wire, pytest.raises(ConnectionError):
                        wire.ask(ApiKey.METADATA, 0, MetadataRequest())
            assert "no upstream broker" not in caplog.text
            with caplog.at_level("INFO", "gregor.gateway.reachability"):
                broker.start_again()
                served(address)
                assert f"{broker.bootstrap}: a broker answers" in caplog.text
    finally:
        broker.stop()


def test_a_restarted_upstream_is_found_again(tmp_path: Path) -> None:
    """Connections to the killed broker end; records that were acknowledged are there afterwards."""
    broker = start_broker(tmp_path)
    try:
        with gateway_before(broker.bootstrap, QUICK) as gateway:
            address = ("127.0.0.1", gateway.listening[0].port)
            topic = served(address)
            with Wire(address) as wire:
                fetch(wire, 0, topic)
                broker.kill()
                with pytest.raises(ConnectionError):
                    wire.ask(ApiKey.METADATA, 0, MetadataRequest())
            broker.start_again()
            served(address)
            with Wire(address) as wire:
                assert b"v0" in records_of(fetch(wire, 0, topic))
    finally:
        broker.stop()


def test_a_hanging_upstream_does_not_hold_new_clients(tmp_path: Path) -> None:
    """A stopped process accepts connections and answers nothing: a new client is disconnected in time."""
    broker = start_broker(tmp_path)
    try:
        with gateway_before(broker.bootstrap, QUICK) as gateway:
            address = ("127.0.0.1", gateway.listening[0].port)
            served(address)
            broker.process.send_signal(signal.SIGSTOP)
            with Wire(address) as waiting:
                waiting.send(ApiKey.METADATA, 0, MetadataRequest())
                waiting.socket.shutdown(socket.SHUT_WR)
                assert waiting.socket.recv(1) == b""
            broker.process.send_signal(signal.SIGCONT)
            served(address)
    finally:
        broker.process.send_signal(signal.SIGCONT)
        broker.stop()
