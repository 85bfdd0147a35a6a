"""TLS and SASL on both sides of a gateway: its own credentials, and exchanges of clients that are passed through."""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from gregor.protocol.messages.list_groups import ListGroupsRequest
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from gregor.protocol.messages.sasl_handshake import SaslHandshakeRequest
from gregor.protocol.records import v1
from gregor.security.password import Password
from gregor.security.scram import ScramClient
from tests.broker.authentication.quick_sessions import LONG_SESSIONS, each_request_logs_in_again
from tests.certificates import as_pem, authority, broker_identity, written
from tests.gateway.kafka_4 import GatewayAndBroker, gateway_before_kafka_4
from tests.gateway.test_old_versions import fetch, message_set, new_topic, produce, records_of
from tests.wire import Wire

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BROKER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{JAAS} user_gateway="g" user_alice="a";',
}
OWN_LOGIN = {
    "gregor.gateway.upstream.security.protocol": "SASL_PLAINTEXT",
    "gregor.gateway.upstream.sasl.mechanism": "PLAIN",
    "gregor.gateway.upstream.sasl.jaas.config": f'{JAAS} username="gateway" password="g";',
}


@pytest.fixture(scope="module")
def own_login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAndBroker]:
    """Provide a gateway with credentials of its own; its clients need none."""
    with gateway_before_kafka_4(tmp_path_factory.mktemp("own"), OWN_LOGIN, BROKER) as pair:
        yield pair


@pytest.fixture(scope="module")
def pass_through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayAndBroker]:
    """Provide a gateway that logs in for its own questions only."""
    settings = {**OWN_LOGIN, "gregor.gateway.sasl.pass.through": "true"}
    with gateway_before_kafka_4(tmp_path_factory.mktemp("passed"), settings, BROKER) as pair:
        yield pair


def round_trip(wire: Wire) -> None:
    """Write and read a record with a 0.8 producer and consumer."""
    topic = new_topic(wire)
    assert produce(wire, 0, topic, message_set(0, 3)).error_code == ErrorCode.NONE
    assert b"v2" in records_of(fetch(wire, 0, topic))


def test_a_gateway_logs_in_for_its_clients(own_login: GatewayAndBroker) -> None:
    """A client from before SASL reads and writes."""
    with Wire(own_login.address) as wire:
        round_trip(wire)


def test_upstream_connections_are_reauthenticated_without_a_reconnect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway authenticates again on the connection of a client, which sees nothing of it (KIP-368)."""
    each_request_logs_in_again(monkeypatch)
    with gateway_before_kafka_4(tmp_path, OWN_LOGIN, {**BROKER, **LONG_SESSIONS}) as pair, Wire(pair.address) as wire:
        round_trip(wire)
        links = [link for session in pair.gateway.sessions._sessions.values() for link in session._links.values()]
        assert links
        (listener,) = pair.broker.services.serving.activity.values()
        for _ in range(4):
            before = listener.successful_reauthentication.total
            # A request without a task, one with a task, and a stream.
            assert wire.ask(ApiKey.LIST_GROUPS, 0, ListGroupsRequest()).error_code == ErrorCode.NONE
            round_trip(wire)
            assert listener.successful_reauthentication.total >= before + 3
        kept = [link for session in pair.gateway.sessions._sessions.values() for link in session._links.values()]
        assert kept == links
        assert listener.failed_reauthentication.total == 0


def test_clients_are_disconnected_if_the_gateway_cannot_log_in_upstream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is disconnected, as while no broker can be reached; the log says which keys to change."""
    settings = {
        "gregor.gateway.upstream.security.protocol": "SASL_PLAINTEXT",
        "gregor.gateway.upstream.sasl.mechanism": "PLAIN",
        "gregor.gateway.upstream.sasl.jaas.config": f'{JAAS} username="gateway" password="wrong";',
    }
    with (
        gateway_before_kafka_4(tmp_path, settings, BROKER) as pair,
        Wire(pair.address) as wire,
        pytest.raises(ConnectionError),
    ):
        wire.ask(ApiKey.METADATA, 0, MetadataRequest())
    assert "Check gregor.gateway.upstream.security.protocol, gregor.gateway.upstream.sasl.*" in caplog.text


def principals(pair: GatewayAndBroker) -> set[str]:
    """Return the users that the broker's connections belong to."""
    return {str(client.principal) for client in pair.broker.services.clients._connected}


@pytest.mark.parametrize("version", [0, 1])
def test_a_plain_login_is_passed_through_to_upstream(pass_through: GatewayAndBroker, version: int) -> None:
    """Upstream sees the client's principal; tokens after SaslHandshake v0 have no header."""
    with Wire(pass_through.address) as wire:
        agreed = wire.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="PLAIN"))
        assert agreed.error_code == ErrorCode.NONE
        assert "PLAIN" in agreed.mechanisms
        assert answer_to(wire, version, b"\0alice\0a") == b""
        round_trip(wire)
        assert "User:alice" in principals(pass_through)


def answer_to(wire: Wire, version: int, token: bytes) -> bytes:
    """Send a token of an exchange, without a header after SaslHandshake v0, and return the answer's token."""
    if version == 0:
        wire.socket.sendall(len(token).to_bytes(4, "big") + token)
        return wire.receive_frame()
    answer = wire.ask(ApiKey.SASL_AUTHENTICATE, 0, SaslAuthenticateRequest(auth_bytes=token))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    found: bytes = answer.auth_bytes
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_a_scram_login_is_passed_through_to_upstream(pass_through: GatewayAndBroker, version: int) -> None:
    """Its four messages reach the same broker, which sees the user."""
    with Wire(pass_through.address) as admin:
        admin.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        answer_to(admin, 1, b"\0alice\0a")
        salt = b"salt of the user"
        user = ScramCredentialUpsertion(
            name="scrammer",
            mechanism=1,
            iterations=4096,
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac("sha256", b"secret", salt, 4096),
        )
        request = AlterUserScramCredentialsRequest(upsertions=[user])
        assert admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request).results[0].error_code == ErrorCode.NONE
    client = ScramClient("SCRAM-SHA-256", "scrammer", Password("secret"))
    with Wire(pass_through.address) as wire:
        wire.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
        proof = client.respond(answer_to(wire, version, client.first()))
        assert proof is not None
        assert client.respond(answer_to(wire, version, proof)) is None
        round_trip(wire)
        assert "User:scrammer" in principals(pass_through)


@pytest.mark.parametrize("version", [0, 1])
def test_an_oauthbearer_login_is_passed_through_to_upstream(pass_through: GatewayAndBroker, version: int) -> None:
    """Upstream sees the subject of the client's token."""
    now = int(time.time())
    claims = ({"alg": "none"}, {"sub": "olga", "iat": now, "exp": now + 3600})
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in claims]
    with Wire(pass_through.address) as wire:
        wire.ask(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
        assert answer_to(wire, version, b"n,,\x01auth=Bearer " + b".".join(parts) + b".\x01\x01") == b""
        round_trip(wire)
        assert "User:olga" in principals(pass_through)


def test_a_wrong_password_is_refused_by_upstream(pass_through: GatewayAndBroker) -> None:
    """The broker's own answer reaches the client, and nothing else does."""
    with Wire(pass_through.address) as wire:
        wire.ask(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"))
        answer = wire.ask(ApiKey.SASL_AUTHENTICATE, 0, SaslAuthenticateRequest(auth_bytes=b"\0alice\0b"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            wire.ask(ApiKey.METADATA, 0, MetadataRequest())


def test_without_a_login_nothing_is_answered(pass_through: GatewayAndBroker) -> None:
    """A client that sends no exchange has the rights that upstream gives it: none."""
    with Wire(pass_through.address) as wire, pytest.raises(ConnectionError):
        wire.ask(ApiKey.METADATA, 0, MetadataRequest())


def test_tls_on_both_sides(tmp_path: Path) -> None:
    """The gateway checks the broker's certificate and shows its own; large answers pass through encrypted."""
    keystore = written(tmp_path, "broker.pem", broker_identity().pem)
    trusted = written(tmp_path, "ca.pem", as_pem(authority().certificate))
    secured = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
    }
    upstream = {
        "gregor.gateway.upstream.security.protocol": "SSL",
        "gregor.gateway.upstream.ssl.truststore.type": "PEM",
        "gregor.gateway.upstream.ssl.truststore.location": trusted,
    }
    with gateway_before_kafka_4(tmp_path / "logs", {**secured, **upstream}, secured) as pair:
        with Wire(pair.address) as wire:
            wire.socket = ssl.create_default_context(cafile=trusted).wrap_socket(
                wire.socket, server_hostname="localhost"
            )
            round_trip(wire)
            topic = new_topic(wire)
            values = b"".join(v1.build_message(n, n, None, bytes(50_000)) for n in range(15))
            assert produce(wire, 2, topic, values).error_code == ErrorCode.NONE
            assert len(records_of(fetch(wire, 2, topic))) == len(values)
            assert len(records_of(fetch(wire, 4, topic))) > 15 * 50_000
        with Wire(pair.address) as plain, pytest.raises(ConnectionError):
            plain.ask(ApiKey.METADATA, 0, MetadataRequest())
