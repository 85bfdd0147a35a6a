"""Our producer, consumer, admin, commands and blocking client log in to Apache Kafka by each mechanism."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from gregor.client import Admin, Consumer, Producer
from gregor.client.admin import NewTopic
from gregor.client.config import AdminConfig
from gregor.client.errors import ClientError
from gregor.client.metrics import Metrics
from gregor.client.wire.connection import Connection
from gregor.client.wire.dialling import open_stream
from gregor.command_line import main
from gregor.pipeline.kafka.cluster_view import ClusterView
from gregor.pipeline.kafka.wire import Wire, WireSettings
from gregor.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.conformance.secured_kafka import SESSION_MS, WAYS, SecuredKafka, add_users, escaped, secured_kafka
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.peer

RELEASES = ("3.9.1", "4.3.0")
ATTEMPTS = 3


@pytest.fixture(scope="module", params=RELEASES)
def kafka(
    request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredKafka]:
    with secured_kafka(shared, tmp_path_factory.mktemp("secured"), request.param) as running:
        trio.run(add_users, running)
        yield running


@pytest.mark.parametrize("way", WAYS)
def test_every_client_logs_in(
    kafka: SecuredKafka, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    address, properties = kafka.client(way)
    settings: dict[str, Any] = {**properties}
    topic, first, second = way.replace(" ", "-"), f"first by {way}".encode(), f"second by {way}"

    async def with_trio_clients() -> None:
        async with Admin(address, **settings) as admin:
            await admin.create_topics([NewTopic(topic, 1)])
        async with Producer(address, **settings) as producer:
            await (await producer.send(topic, first)).wait()
        async with Consumer(address, group_id=topic, auto_offset_reset="earliest", **settings) as consumer:
            consumer.subscribe([topic])
            with trio.fail_after(PATIENCE_S):
                while not (records := await consumer.poll()):
                    pass
            assert [record.value for record in records] == [first]

    trio.run(with_trio_clients)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={escaped(text)}\n" for name, text in settings.items()))
    here = ["--bootstrap-server", address, "--command-config", str(file), "--topic", topic]
    (tmp_path / "lines").write_text(second)
    with (tmp_path / "lines").open() as lines:
        monkeypatch.setattr("sys.stdin", lines)
        assert main(["produce", *here]) == 0
    capsys.readouterr()
    assert main(["consume", *here, "--from-beginning", "--max-messages", "2"]) == 0
    assert capsys.readouterr().out.splitlines() == [first.decode(), second]
    options = {f"kafka.{name}": text for name, text in settings.items()}
    with ClusterView(WireSettings.from_options({**options, "kafka.bootstrap.servers": address})) as view:
        assert view.topics([topic])[topic].partitions == (0,)


async def test_connections_outlive_their_sessions(kafka: SecuredKafka) -> None:
    """Kafka closes a connection whose session has ended at its next request; ours authenticate before that."""
    async with trio.open_nursery() as nursery:
        for way in ("PLAIN", "SCRAM-SHA-512", "unsecured token", "OAUTHBEARER", "delegation token"):
            nursery.start_soon(live_on, *kafka.client(way))


async def live_on(address: str, settings: dict[str, str]) -> None:
    """Ask on a connection of each kind through several sessions.

    A process that is stopped just before its session ends cannot renew the session, and Kafka closes the connection: so
    there are a few attempts. Without new logins each of them fails.
    """
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            await ask_through_sessions(address, settings)
            return
        except* ClientError:
            if not attempts_left:
                raise


async def ask_through_sessions(address: str, settings: dict[str, str]) -> None:
    host, _, port = address.rpartition(":")
    config = AdminConfig.from_properties(settings)
    connection = Connection(await open_stream(host, int(port), config), address, config, Metrics())
    options = {f"kafka.{name}": text for name, text in settings.items()}
    wire_settings = WireSettings.from_options({**options, "kafka.bootstrap.servers": address})
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)
        wire = await trio.to_thread.run_sync(Wire, host, int(port), wire_settings)
        with closing(wire):
            for _ in range(5):
                await trio.sleep(SESSION_MS / 1000 / 2)
                # The second is in flight while the first may wait for a login.
                answers = [
                    connection.submit(MetadataRequest(), MetadataResponse, version=version) for version in (1, 9)
                ]
                assert [(await answer.wait()).brokers[0].node_id for answer in answers] == [1, 1]
                answer = await trio.to_thread.run_sync(wire.request, MetadataRequest(), MetadataResponse)
                assert answer.brokers[0].node_id == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("way", "changes", "words"),
    [
        ("TLS", {"ssl.truststore.location": ""}, "certificate"),
        (
            "certificate",
            {"ssl.keystore.location": ""},
            "SSL handshake failed: .*certificate",
        ),
        ("PLAIN", {"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ("PLAIN", {"sasl.jaas.config": "{wrong}"}, "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", {"sasl.jaas.config": "{wrong}"}, "invalid credentials with SASL mechanism"),
    ],
)
async def test_a_failed_login_raises_an_error_with_its_reason(
    kafka: SecuredKafka, way: str, changes: dict[str, str], words: str
) -> None:
    address, settings = kafka.client(way)
    kind = "plain.Plain" if way == "PLAIN" else "scram.Scram"
    wrong = f'org.apache.kafka.common.security.{kind}LoginModule required username="user" password="wrong";'
    changed = {**settings, **{name: text.replace("{wrong}", wrong) for name, text in changes.items()}}
    properties: dict[str, Any] = {name: text for name, text in changed.items() if text}
    with pytest.raises(ClientError, match=words):
        async with Admin(address, default_api_timeout_ms=10_000, **properties) as admin:
            await admin.describe_cluster()
