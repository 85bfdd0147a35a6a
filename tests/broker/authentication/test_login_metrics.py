"""The metrics of logins, under the names of Kafka's ``socket-server-metrics``."""

from __future__ import annotations

import math
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from gregor.broker.monitoring.listener_families import listener_families
from gregor.client.errors import AuthenticationFailedError, ConnectionLostError
from gregor.protocol.messages.metadata import MetadataRequest, MetadataResponse
from gregor.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from gregor.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.authentication.secured_broker import PLAIN_MODULE, SCRAM_MODULE, SecuredBroker
from tests.waiting import eventually

WRONG = f'{PLAIN_MODULE} required username="alice" password="wrong";'
SCRAM = f'{SCRAM_MODULE} required username="scrammer" password="scram-secret";'


def counts(secured: SecuredBroker, listener: str) -> dict[str, float]:
    """Return the metrics of a listener that are not 0 or NaN, without their common prefix and without rates."""
    found = {}
    for family in listener_families(secured.broker.services.serving.activity):
        for labels, value in family.samples:
            is_counted = labels.get("listener") == listener and labels.get("networkProcessor") == "0"
            if is_counted and value and not math.isnan(value) and not family.name.endswith("_rate"):
                found[family.name.removeprefix("kafka_server_socket_server_metrics_")] = value
    return found


def is_quiet(secured: SecuredBroker, listener: str) -> bool:
    return "connection_count" not in counts(secured, listener)


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_connections_and_logins_are_counted(secured: SecuredBroker, listener: str) -> None:
    """A client of PLAINTEXT does not log in. Nobody counts as failed who only connects."""
    async with secured.admin(listener, **secured.client(listener)) as admin:
        await admin.describe_cluster()
        during = counts(secured, listener)
    await (await trio.open_tcp_stream("127.0.0.1", secured.port(listener))).aclose()
    await eventually(partial(is_quiet, secured, listener))
    after = counts(secured, listener)
    count = during["connection_count"]
    assert during["connection_creation_total"] == count
    assert (after["connection_creation_total"], after["connection_close_total"]) == (count + 1, count + 1)
    assert during.get("successful_authentication_total", 0) == (0 if listener == "PLAINTEXT" else count)
    # Our client authenticates again on new connections, yet it could on this one: it sends SaslAuthenticate v1.
    assert during.get("successful_authentication_no_reauth_total", 0) == (count if listener == "SSL" else 0)
    assert "failed_authentication_total" not in after


async def test_failed_logins_are_counted(secured: SecuredBroker) -> None:
    for refused in (WRONG, WRONG):
        config = secured.config("SASL_SSL", sasl_jaas_config=refused)
        with pytest.raises(AuthenticationFailedError):
            await (await secured.connect("SASL_SSL", config)).run()
    with pytest.raises(ConnectionLostError):
        await (await secured.connect("SSL", secured.config("PLAINTEXT"))).run()
    async with await trio.open_tcp_stream("127.0.0.1", secured.port("SASL_PLAINTEXT")) as stream:
        await stream.send_all(b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03")
        assert await stream.receive_some() == b""
    for listener, failed in (("SASL_SSL", 2), ("SSL", 1), ("SASL_PLAINTEXT", 1)):
        await eventually(partial(is_quiet, secured, listener))
        assert counts(secured, listener)["failed_authentication_total"] == failed
        assert "successful_authentication_total" not in counts(secured, listener)


MECHANISM = "listener.name.sasl_plaintext.plain.connections.max.reauth.ms"


@pytest.mark.parametrize("properties", [{MECHANISM: "10000", "connections.max.reauth.ms": "500000"}])
async def test_reauthentications_and_expired_sessions_are_counted(
    secured: SecuredBroker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of PLAIN end after their own time (KIP-368), those of SCRAM after that of all mechanisms."""
    monkeypatch.setattr("gregor.security.client_login.SESSION_PART", 10)

    async def again(connection: object, password: str) -> SaslAuthenticateResponse:
        ask = connection.request  # type: ignore[attr-defined]
        await ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, version=1)
        request = SaslAuthenticateRequest(auth_bytes=f"\0alice\0{password}".encode())
        answer = await ask(request, SaslAuthenticateResponse, version=1)
        assert isinstance(answer, SaslAuthenticateResponse)
        return answer

    first, second, third = [await secured.connect("SASL_PLAINTEXT", secured.config("SASL_PLAINTEXT")) for _ in range(3)]
    scram = secured.config("SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=SCRAM)
    other = await secured.connect("SASL_PLAINTEXT", scram)
    async with trio.open_nursery() as nursery:
        for connection in (first, second, third, other):
            await nursery.start(connection.run)
        await trio.sleep(5)
        assert (await again(first, "alice-secret")).session_lifetime_ms == 10_000
        assert (await again(second, "wrong")).error_code == 58
        await trio.sleep(20)
        with pytest.raises(ConnectionLostError):
            await third.request(MetadataRequest(topics=[]), MetadataResponse, version=4)
        await other.request(MetadataRequest(topics=[]), MetadataResponse, version=4)
        found = counts(secured, "SASL_PLAINTEXT")
        nursery.cancel_scope.cancel()
    assert found["successful_authentication_total"] == 4
    assert found["successful_reauthentication_total"] == 1
    assert found["failed_reauthentication_total"] == 1
    assert found["expired_connections_killed_count"] == 1
    assert "failed_authentication_total" not in found
    latency_ms = secured.broker.services.serving.activity["SASL_PLAINTEXT"].reauthentication_latency_ms
    assert 0 <= latency_ms.average() <= latency_ms.maximum()


async def test_the_connection_creation_rate_covers_the_last_30_to_60_seconds(
    secured: SecuredBroker, autojump_clock: MockClock
) -> None:
    """A rate covers the last 30 to 60 seconds."""

    activity = secured.broker.services.serving.activity["SSL"]

    def rate() -> float:
        return metric(secured, "kafka_server_socket_server_metrics_connection_creation_rate")

    assert rate() == 0
    for _ in range(60):
        activity.connection_creation.record()
    assert rate() == 2
    await trio.sleep(45)
    assert rate() == pytest.approx(60 / 45)
    await trio.sleep(20)
    assert rate() == 0


def metric(secured: SecuredBroker, name: str) -> float:
    """Return a metric of the listener SSL."""
    families = listener_families(secured.broker.services.serving.activity)
    (family,) = [family for family in families if family.name == name]
    return next(value for labels, value in family.samples if labels["listener"] == "SSL")


async def connect_and_leave(secured: SecuredBroker, count: int) -> None:
    for _ in range(count):
        await (await trio.open_tcp_stream("127.0.0.1", secured.port("SSL"))).aclose()
    await eventually(partial(is_quiet, secured, "SSL"))


async def test_the_connection_accept_rate_covers_eleven_seconds(
    secured: SecuredBroker, autojump_clock: MockClock
) -> None:
    """The window is that of quotas; nothing is throttled or blocked without a limit."""
    await connect_and_leave(secured, 10)
    assert metric(secured, "kafka_server_socket_server_metrics_connection_accept_rate") == pytest.approx(1, rel=0.2)
    await trio.sleep(30)
    assert metric(secured, "kafka_server_socket_server_metrics_connection_accept_rate") == 0
    assert math.isnan(metric(secured, "kafka_server_socket_server_metrics_connection_accept_throttle_time"))
    assert metric(secured, "kafka_network_acceptor_acceptorblockedpercent_count") == 0


@pytest.mark.parametrize("properties", [{"listener.name.ssl.max.connection.creation.rate": "2"}])
async def test_throttled_connections_block_the_acceptor(secured: SecuredBroker, autojump_clock: MockClock) -> None:
    await connect_and_leave(secured, 40)
    assert metric(secured, "kafka_server_socket_server_metrics_connection_accept_throttle_time") > 0
    assert metric(secured, "kafka_network_acceptor_acceptorblockedpercent_count") > 0
    assert 0 < metric(secured, "kafka_network_acceptor_acceptorblocked_percent") <= 1


@pytest.mark.parametrize("properties", [{"listener.name.ssl.max.connections": "1"}])
async def test_reaching_max_connections_blocks_the_acceptor(secured: SecuredBroker, autojump_clock: MockClock) -> None:
    first = await trio.open_tcp_stream("127.0.0.1", secured.port("SSL"))
    second = await trio.open_tcp_stream("127.0.0.1", secured.port("SSL"))
    await trio.sleep(5)
    await first.aclose()
    await eventually(lambda: metric(secured, "kafka_network_acceptor_acceptorblockedpercent_count") > 4e9)
    await second.aclose()
