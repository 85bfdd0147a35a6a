"""Clients of each security protocol: accepted logins, the errors of refused ones, and their cost."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.broker.config.listeners import ListenerError
from gregor.client.consumer.consumer import Consumer
from gregor.client.errors import AuthenticationFailedError, ConfigError, ConnectionLostError
from gregor.client.producer.producer import Producer
from gregor.protocol.framing import LENGTH
from gregor.security.password import HIDDEN
from tests.broker.authentication.secured_broker import OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, SecuredBroker
from tests.certificates import as_pem, client_identity, made, other_authority, written
from tests.waiting import PATIENCE_S

ANY_NAMES = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def scram(user: str, password: str, number: int = 256) -> dict[str, str]:
    return {
        "sasl_mechanism": f"SCRAM-SHA-{number}",
        "sasl_jaas_config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
    }


LOGINS: dict[str, dict[str, str]] = {
    "PLAIN": {},
    "SCRAM-SHA-256": scram("scrammer", "scram-secret"),
    "SCRAM-SHA-512": scram("scrammer", "scram-secret", 512),
    "OAUTHBEARER": {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="olga";',
    },
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [10, 70_000, 700_000])
async def test_records_arrive_over_each_protocol(secured: SecuredBroker, protocol: str, size: int) -> None:
    """Small answers are gathered, and larger ones come from files."""
    settings_of_client: dict[str, Any] = secured.client(protocol)
    value = bytes(range(256)) * (size // 256 + 1)
    async with Producer(secured.address(protocol), **settings_of_client) as producer:
        for _ in range(5):
            await producer.send("t", value[:size])
    async with Consumer(secured.address(protocol), auto_offset_reset="earliest", **settings_of_client) as consumer:
        consumer.assign([("t", 0)])
        records: list[Any] = []
        while len(records) < 5:
            records += await consumer.poll()
    assert {record.value for record in records} == {value[:size]}


@pytest.mark.parametrize("login", LOGINS.values(), ids=LOGINS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_a_user_logs_in_with_each_sasl_mechanism(
    secured: SecuredBroker, protocol: str, login: dict[str, str]
) -> None:
    async with secured.admin(protocol, **secured.client(protocol, **login)) as admin:
        assert (await admin.describe_cluster()).controller_id == 1


@dataclass(frozen=True)
class Refusal:
    """A refused login: the client's settings, its listener and the expected error."""

    listener: str
    words: str
    changes: dict[str, str]
    protocol: str = ""


REFUSALS = {
    "wrong password": Refusal(
        "SASL_SSL",
        "Authentication failed: Invalid username or password",
        {"sasl_jaas_config": f'{PLAIN_MODULE} required username="alice" password="wrong";'},
    ),
    "unknown user": Refusal(
        "SASL_PLAINTEXT",
        "Authentication failed: Invalid username or password",
        {"sasl_jaas_config": f'{PLAIN_MODULE} required username="mallory" password="alice-secret";'},
    ),
    "wrong SCRAM password": Refusal(
        "SASL_PLAINTEXT",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        scram("scrammer", "wrong"),
    ),
    "unknown SCRAM user": Refusal(
        "SASL_PLAINTEXT",
        "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512",
        scram("mallory", "wrong", 512),
    ),
    "expired token": Refusal(
        "SASL_PLAINTEXT",
        "invalid_token",
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_jaas_config": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="o" '
            'unsecuredLoginNumberClaim_exp="5";',
        },
    ),
    "no trust": Refusal("SSL", "self-signed certificate in certificate chain", {"ssl_truststore_location": "{other}"}),
    "TLS on PLAINTEXT": Refusal("PLAINTEXT", "", {}, "SSL"),
    "PLAINTEXT on TLS": Refusal("SSL", "", {}, "PLAINTEXT"),
    "SASL on PLAINTEXT": Refusal("PLAINTEXT", "ILLEGAL_SASL_STATE", {}, "SASL_PLAINTEXT"),
    "only TLS 1.1": Refusal("SSL", "", {"ssl_enabled_protocols": "TLSv1.1"}),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
async def test_a_refused_client_gets_the_error_of_its_failed_login(secured: SecuredBroker, case: Refusal) -> None:
    other = written(secured.directory, "other.pem", as_pem(other_authority().certificate))
    changes = {name: text.replace("{other}", other) for name, text in case.changes.items()}
    config = secured.config(case.protocol or case.listener, **changes)
    with pytest.raises(ConnectionLostError, match=case.words or None):
        await (await secured.connect(case.listener, config)).run()


@pytest.mark.parametrize("properties", [{"ssl.client.auth": "required"}])
@pytest.mark.parametrize(
    ("identity", "is_let_in"),
    [
        (client_identity(), True),
        (None, False),
        (made("stranger", other_authority()), False),
        (made("late", None, expired=True), False),
    ],
)
async def test_mutual_tls_accepts_only_trusted_client_certificates(
    secured: SecuredBroker, identity: object, is_let_in: bool
) -> None:
    changes = {}
    if identity is not None:
        changes = {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_location": written(secured.directory, "own.pem", identity.pem),  # type: ignore[attr-defined]
        }
    async with secured.admin("SSL", default_api_timeout_ms="3000", **secured.client("SSL", **changes)) as admin:
        if is_let_in:
            assert (await admin.describe_cluster()).controller_id == 1
        else:
            with pytest.raises(Exception, match=r"SSL|alert|closed|certificate|reset"):
                await admin.describe_cluster()


@pytest.mark.parametrize("properties", [ANY_NAMES])
@pytest.mark.parametrize(
    ("identity", "words"),
    [
        (lambda: made("broker", None, expired=True), "expired|self-signed"),
        (lambda: made("broker", None), "self-signed"),
        (lambda: _of_test_ca(host="elsewhere.example"), "[Hh]ostname|IP address"),
        (lambda: _of_test_ca(expired=True), "expired"),
    ],
)
async def test_a_client_refuses_an_untrusted_expired_or_misnamed_broker_certificate(
    secured: SecuredBroker, identity: Callable[[], object], words: str
) -> None:
    written(secured.directory, "broker.pem", identity().pem)  # type: ignore[attr-defined]
    secured.broker._guards.take_changes()
    with pytest.raises(AuthenticationFailedError, match=words):
        await secured.connect("SSL", secured.config("SSL"))


def _of_test_ca(*, host: str = "localhost", expired: bool = False) -> object:
    from tests.certificates import authority

    return made("broker", authority(), host=host, expired=expired)


@pytest.mark.parametrize("properties", [ANY_NAMES])
async def test_a_client_may_ignore_the_host_name(secured: SecuredBroker) -> None:
    written(secured.directory, "broker.pem", _of_test_ca(host="elsewhere.example").pem)  # type: ignore[attr-defined]
    secured.broker._guards.take_changes()
    settings_of_client = secured.client("SSL") | {"ssl_endpoint_identification_algorithm": ""}
    async with secured.admin("SSL", **settings_of_client) as admin:
        assert (await admin.describe_cluster()).controller_id == 1


# --- requests before the login, and malformed ones


async def raw(secured: SecuredBroker, listener: str, *frames: bytes) -> bytes:
    """Return the bytes that the broker answers to these frames until it closes the connection."""
    stream = await trio.open_tcp_stream("127.0.0.1", secured.port(listener))
    answer = b""
    async with stream:
        try:
            await stream.send_all(b"".join(LENGTH.pack(len(frame)) + frame for frame in frames))
            with trio.fail_after(PATIENCE_S):
                while data := await stream.receive_some():
                    answer += data
        except (trio.BrokenResourceError, OSError):
            pass
    return answer


def header(key: int, version: int) -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7\0\1c"


METADATA = header(3, 0) + b"\0\0\0\0"
HANDSHAKE = header(17, 1) + b"\0\5PLAIN"
AUTHENTICATE = header(36, 0) + b"\0\0\0\x13\0alice\0alice-secret"


@pytest.mark.parametrize(
    "frames",
    [
        [METADATA],
        [HANDSHAKE, METADATA],
        [AUTHENTICATE],
        [HANDSHAKE, HANDSHAKE],
        [b"\0"],
        [b""],
        [b"\xff" * 40],
        [HANDSHAKE[:-1]],
        [header(17, 7) + b"\0\5PLAIN"],
        [header(18, 0), header(18, 0)],
        [HANDSHAKE, b"\0"],
    ],
)
async def test_a_request_before_the_login_is_refused(secured: SecuredBroker, frames: list[bytes]) -> None:
    """Nothing but ApiVersions, SaslHandshake and tokens is answered; the broker serves others meanwhile."""
    answer = await raw(secured, "SASL_PLAINTEXT", *frames)
    assert b"hello" not in answer
    assert len(answer) < 2_000
    async with secured.admin("SASL_PLAINTEXT", **secured.client("SASL_PLAINTEXT")) as admin:
        assert (await admin.describe_cluster()).controller_id == 1


async def test_an_unknown_mechanism_is_answered_with_the_enabled_ones(secured: SecuredBroker) -> None:
    answer = await raw(secured, "SASL_PLAINTEXT", header(17, 1) + b"\0\6GSSAPI")
    assert answer[8:10] == (33).to_bytes(2, "big")
    assert b"SCRAM-SHA-512" in answer


async def test_a_login_after_sasl_handshake_v0_is_served(secured: SecuredBroker) -> None:
    """SaslHandshake v0, as clients of 0.10 and 0.11 send it: the tokens are frames by themselves."""
    stream = await trio.open_tcp_stream("127.0.0.1", secured.port("SASL_PLAINTEXT"))
    frames = [header(17, 0) + b"\0\5PLAIN", b"\0alice\0alice-secret", header(18, 0)]
    async with stream:
        await stream.send_all(b"".join(LENGTH.pack(len(frame)) + frame for frame in frames))
        answer = b""
        while len(answer) < 100:
            answer += await stream.receive_some()
    size = LENGTH.unpack_from(answer)[0]
    assert answer[4 + size : 8 + size] == b"\0\0\0\0", "the answer to PLAIN's token is empty"
    assert answer[8 + size + 4 : 8 + size + 8] == b"\0\0\0\7", "requests are served after that"


async def test_a_frame_before_the_login_has_a_small_limit(secured: SecuredBroker) -> None:
    stream = await trio.open_tcp_stream("127.0.0.1", secured.port("SASL_PLAINTEXT"))
    async with stream:
        await stream.send_all(LENGTH.pack(524_289))
        with trio.fail_after(PATIENCE_S):
            assert await stream.receive_some() == b""


@settings(max_examples=30, deadline=None)
@given(data=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=4), framed=st.booleans())
def test_random_bytes_never_complete_a_login_and_raise_only_documented_errors(data: list[bytes], framed: bool) -> None:
    """A login without sockets: for any bytes it never completes, and raises only the documented errors."""
    from gregor.broker.authentication.sasl_login import LoginRules, SaslLogin
    from gregor.broker.server.admission import ClientRefusedError
    from gregor.protocol.errors import DecodeError
    from gregor.security.plain import PlainServer
    from tests.asking import a_client

    async def run() -> None:
        login = SaslLogin(LoginRules({"PLAIN": lambda: PlainServer({})}), a_client())

        async def respond(frame: memoryview) -> None:
            return None

        for frame in [HANDSHAKE, *data] if framed else data:
            try:
                await login.answer(memoryview(frame), respond)
            except (ClientRefusedError, DecodeError):
                break
        assert not login.is_complete

    trio.run(run)


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("properties", [{"gregor.max.unauthenticated.connections": "8"}])
async def test_the_oldest_unauthenticated_connections_are_closed_at_the_limit(
    secured: SecuredBroker, listener: str
) -> None:
    """Of many silent connections the oldest are closed, and a client that logs in is served."""
    silent = [await trio.open_tcp_stream("127.0.0.1", secured.port(listener)) for _ in range(40)]
    async with secured.admin(listener, **secured.client(listener)) as admin:
        assert (await admin.describe_cluster()).controller_id == 1
    with trio.fail_after(PATIENCE_S):
        assert await silent[0].receive_some() == b""
    for stream in silent:
        await trio.aclose_forcefully(stream)


@pytest.mark.parametrize("listener", ["SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("properties", [{"gregor.authentication.timeout.ms": "5000"}])
async def test_a_slow_login_is_closed_after_the_authentication_timeout(
    secured: SecuredBroker, listener: str, autojump_clock: MockClock
) -> None:
    async with await trio.open_tcp_stream("127.0.0.1", secured.port(listener)) as stream:
        await stream.send_all(b"\x16\x03\x01" if listener == "SSL" else b"\0\0\0\x20")
        began = trio.current_time()
        with trio.fail_after(100):
            assert await stream.receive_some() == b""
    assert 4.9 <= trio.current_time() - began < 20


# --- sessions (KIP-368)


@pytest.mark.parametrize("properties", [{"connections.max.reauth.ms": "10000"}])
async def test_reauthentication_prolongs_a_session_and_refuses_another_principal(
    secured: SecuredBroker, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gregor.security.client_login.SESSION_PART", 10)
    from gregor.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
    from gregor.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

    connection = await secured.connect("SASL_PLAINTEXT", secured.config("SASL_PLAINTEXT"))
    async with trio.open_nursery() as nursery:
        await nursery.start(connection.run)

        async def again(user: str, password: str) -> SaslAuthenticateResponse:
            agreed = await connection.request(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse, version=1)
            assert agreed.error_code == 0
            request = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())
            return await connection.request(request, SaslAuthenticateResponse, version=1)

        await trio.sleep(9)
        answer = await again("alice", "alice-secret")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 10_000)
        await trio.sleep(9)
        answer = await again("bob", "bob-secret")
        assert answer.error_code == 58
        assert answer.error_message == "Cannot change principals during re-authentication from User:alice: User:bob"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("properties", [{"connections.max.reauth.ms": "3000"}])
async def test_our_client_continues_after_its_session_has_expired(
    secured: SecuredBroker, autojump_clock: MockClock
) -> None:
    async with secured.admin("SASL_SSL", **secured.client("SASL_SSL")) as admin:
        for _ in range(4):
            assert (await admin.describe_cluster()).controller_id == 1
            await trio.sleep(2)


# --- configuration


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"listeners": "SSL://127.0.0.1:0"}, "listener SSL: an SSL listener needs a certificate"),
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"},
            "GSSAPI .Kerberos. is not supported by Gregor; set one of PLAIN",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"},
            "PLAIN needs users: set listener.name.sasl_plaintext.plain.sasl.jaas.config",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": "x.PlainLoginModule required user_a=planted",
            },
            "listener.name.sasl_plaintext.plain.sasl.jaas.config: JAAS config entry not terminated by semi-colon",
        ),
        (
            {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": "/nowhere", "ssl.keystore.type": "PEM"},
            "ssl.keystore.location: cannot read /nowhere: No such file",
        ),
        (
            {"listeners": "SSL://127.0.0.1:0", "ssl.enabled.protocols": "SSLv3"},
            "ssl.enabled.protocols: SSLv3 is not one",
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "com.example.Ldap",
            },
            "com.example.Ldap is a Java class, which Gregor cannot run",
        ),
    ],
)
async def test_a_listener_with_wrong_security_settings_is_refused_and_the_key_is_named(
    tmp_path: Path, properties: dict[str, str], words: str
) -> None:
    broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), **properties}))
    with pytest.raises(ListenerError, match=words) as refusal:
        await broker.run()
    assert "planted" not in str(refusal.value)


@pytest.mark.parametrize(
    ("settings_of_client", "words"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl.trustore.location": "x"}, "unknown key 'ssl.trustore.location'; did you mean 'ssl.truststore.location'"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: GSSAPI .Kerberos. is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{SCRAM_MODULE} required username="u" password="planted";',
            },
            "the login module ScramLoginModule does not fit sasl.mechanism=PLAIN",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f'{PLAIN_MODULE} required password="planted";',
            },
            "no option username",
        ),
        ({"security.protocol": "SSL", "ssl.keystore.key": "planted"}, "SSL private key can be specified only for PEM"),
    ],
)
def test_wrong_security_settings_of_a_client_are_refused_and_the_key_is_named(
    settings_of_client: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refusal:
        Producer("localhost:1", **settings_of_client)
    assert "planted" not in str(refusal.value)


def test_secrets_of_a_client_are_not_shown(tmp_path: Path) -> None:
    settings_of_client: dict[str, Any] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="u" password="planted";',
        "ssl.key.password": "planted",
    }
    producer = Producer("localhost:1", **settings_of_client)
    shown = repr(producer.config) + repr(producer.config.security) + str(vars(producer.config.security))
    assert "planted" not in shown
    assert HIDDEN in shown


def test_the_context_of_a_listener_offers_no_renegotiation(secured_context: ssl.SSLContext) -> None:
    assert secured_context.options & ssl.OP_NO_RENEGOTIATION
    assert secured_context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.fixture
def secured_context(tmp_path: Path) -> ssl.SSLContext:
    from gregor.security.tls import TlsSettings
    from tests.certificates import broker_identity

    path = written(tmp_path, "b.pem", broker_identity().pem)
    return TlsSettings.from_properties({"ssl.keystore.type": "PEM", "ssl.keystore.location": path}).server_context()
