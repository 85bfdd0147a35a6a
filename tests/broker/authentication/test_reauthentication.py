"""Our clients authenticate again on their live connections before a session ends (KIP-368)."""

from __future__ import annotations

import json
import logging
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from gregor.client.config import AdminConfig
from gregor.client.consumer.consumer import Consumer
from gregor.client.errors import ConnectionLostError
from gregor.client.producer.producer import Producer
from gregor.client.wire.connection import Connection
from gregor.pipeline.kafka.wire import Wire, WireSettings
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from gregor.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.authentication.quick_sessions import LONG_SESSIONS, each_request_logs_in_again
from tests.broker.authentication.secured_broker import SCRAM_MODULE, SecuredBroker

LONG = pytest.mark.parametrize("properties", [{"connections.max.reauth.ms": "3000"}])
EACH_REQUEST = pytest.mark.parametrize("properties", [LONG_SESSIONS])
"""The sessions of tests whose clock does not jump, and whose clients log in again before each request."""

SCRAM = {
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_jaas_config": f'{SCRAM_MODULE} required username="scrammer" password="scram-secret";',
}


@LONG
@pytest.mark.parametrize("changes", [{}, SCRAM], ids=["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_a_connection_reauthenticates_through_many_sessions(
    secured: SecuredBroker, autojump_clock: MockClock, protocol: str, changes: dict[str, str]
) -> None:
    connection = await secured.connect(protocol, secured.config(protocol, **changes))
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        for pause_s in (1, 2.9, 0, 2.6, 20, 3, 5):
            await trio.sleep(pause_s)
            answer = await connection.request(MetadataRequest(), MetadataResponse)
            assert answer.brokers
        nursery.cancel_scope.cancel()


def long_poll() -> FetchRequest:
    """Return a fetch that waits two seconds for a record that does not come."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=2000, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic="t", partitions=[partition])]
    )


@LONG
async def test_reauthentication_waits_for_requests_in_flight_and_precedes_later_requests(
    secured: SecuredBroker, autojump_clock: MockClock
) -> None:
    """Requests in flight are answered first, and those behind the login after it, each by its own answer."""
    settings: dict[str, Any] = secured.client("SASL_PLAINTEXT")
    async with Producer(secured.address("SASL_PLAINTEXT"), **settings) as producer:
        metadata = await (await producer.send("t", b"1")).wait()
    assert metadata.offset == 0
    connection = await secured.connect("SASL_PLAINTEXT", secured.config("SASL_PLAINTEXT"))
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        await trio.sleep(2.2)
        fetch = long_poll()
        fetch.topics[0].partitions[0].fetch_offset = 1
        slow = connection.submit(fetch, FetchResponse, version=11)
        await trio.sleep(0.7)
        behind = [connection.submit(MetadataRequest(), MetadataResponse, version=version) for version in (1, 5, 9)]
        await trio.sleep(0.1)
        behind.append(connection.submit(MetadataRequest(), MetadataResponse, version=2))
        assert (await slow.wait()).responses[0].partitions[0].error_code == 0
        assert [(await pending.wait()).brokers[0].node_id for pending in behind] == [1] * 4
        nursery.cancel_scope.cancel()


@LONG
async def test_a_producer_and_a_consumer_lose_no_records_during_reauthentication(
    secured: SecuredBroker, autojump_clock: MockClock
) -> None:
    settings: dict[str, Any] = secured.client("SASL_SSL")
    address = secured.address("SASL_SSL")
    count = 40
    seen: list[bytes | None] = []
    async with Producer(address, **settings) as producer, trio.open_nursery() as nursery:

        async def consume() -> None:
            async with Consumer(address, auto_offset_reset="earliest", group_id="g", **settings) as consumer:
                consumer.subscribe(["t"])
                while len(seen) < count:
                    seen.extend([record.value for record in await consumer.poll()])

        await (await producer.send("t", b"0")).wait()
        nursery.start_soon(consume)
        for number in range(1, count):
            await producer.send("t", b"%d" % number)
            await trio.sleep(0.4)
    assert seen == [b"%d" % number for number in range(count)]


def unsecured(subject: str) -> str:
    """Return a token without a signature."""
    claims = {"sub": subject, "iat": int(time.time()) - 1, "exp": int(time.time()) + 600}
    parts = [urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)]
    return ".".join([*parts, ""])


@EACH_REQUEST
async def test_reauthentication_as_another_principal_is_refused_and_a_new_connection_works(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    each_request_logs_in_again(monkeypatch)
    subjects: Iterator[str] = iter(["olga", "otto", "otto"])
    config = AdminConfig.from_properties(
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_function": lambda: unsecured(next(subjects)),
        }
    )
    connection: Connection = await secured.connect("SASL_PLAINTEXT", config)
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        # The first token is still valid; a client that has lost it asks for another.
        vars(config.security).pop("_tokens")
        with pytest.raises(ConnectionLostError, match=r"Cannot change principals .* from User:olga: User:otto"):
            await connection.request(MetadataRequest(), MetadataResponse)
        assert "cannot authenticate again: Cannot change principals" in caplog.records[-1].getMessage()
        assert caplog.records[-1].levelno == logging.WARNING
        second = await secured.connect("SASL_PLAINTEXT", config)
        await nursery.start(second.run)
        assert (await second.request(MetadataRequest(), MetadataResponse)).brokers
        nursery.cancel_scope.cancel()


@EACH_REQUEST
async def test_the_blocking_client_logs_in_again(secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request ahead keeps its answer."""
    each_request_logs_in_again(monkeypatch)
    options = {f"kafka.{name.replace('_', '.')}": text for name, text in secured.client("SASL_SSL", **SCRAM).items()}
    settings = WireSettings.from_options({**options, "kafka.bootstrap.servers": secured.address("SASL_SSL")})

    def ask() -> list[int]:
        wire = Wire("127.0.0.1", secured.port("SASL_SSL"), settings)
        nodes = []
        wire.send(MetadataRequest(), version=1)
        for _ in range(8):
            wire.send(MetadataRequest(), version=5)
            nodes.append(wire.receive(MetadataResponse).brokers[0].node_id)
        nodes.append(wire.receive(MetadataResponse).brokers[0].node_id)
        wire.close()
        return nodes

    assert await trio.to_thread.run_sync(ask) == [1] * 9
    assert secured.broker.services.serving.activity["SASL_SSL"].successful_reauthentication.total >= 8
