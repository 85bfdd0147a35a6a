"""Tokens by client credentials and key sets from a real HTTP server: good, failing, slow, huge and hostile answers."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gregor.security import token_endpoint
from gregor.security.client_security import ClientSecurity
from gregor.security.errors import HttpError, SaslAuthenticationError, SecuritySettingError
from gregor.security.login_rules import HttpLimits, RefreshRules
from gregor.security.oauthbearer import InvalidTokenError
from gregor.security.token_checks import ClaimRules, SignedTokens
from gregor.security.token_sources import TokenSource
from tests.certificates import as_pem, authority, broker_identity, other_authority, written
from tests.security.token_server import (
    CLIENT_ID,
    SCOPE,
    SECRET,
    Behaviour,
    TokenServer,
    drips,
    drips_body,
    fails,
    hangs,
    never_ends,
    new_key,
    speaks_ssh,
    token_server,
    well,
)

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
QUICK = {"sasl.login.retry.backoff.ms": "1", "sasl.login.retry.backoff.max.ms": "300"}
LIMITS = HttpLimits(connect_s=5, read_s=0.5)


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.fixture
def secured_server(tmp_path: Path) -> Iterator[TokenServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(written(tmp_path, "server.pem", broker_identity().pem))
    with token_server(context) as running:
        yield running


def client(url: str, *, secret: str = SECRET, scope: str = SCOPE, options: str = "", **changes: str) -> ClientSecurity:
    """Return the security of a client of this endpoint; changes are keys with underscores."""
    jaas = f'{MODULE} required clientId="{CLIENT_ID}" clientSecret="{secret}" scope="{scope}" {options};'
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": jaas,
        "sasl.oauthbearer.token.endpoint.url": url,
        **QUICK,
        **{name.replace("_", "."): text for name, text in changes.items()},
    }
    return ClientSecurity.from_properties(properties)


def test_a_token_is_kept_and_shared_by_threads(server: TokenServer) -> None:
    security = client(server.url("/token"))
    found: list[bytes] = []
    threads = [threading.Thread(target=lambda: found.append(security.exchange().first())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert found[0].startswith(b"n,,\x01auth=Bearer ey")
    assert server.requests == ["/token"]


def test_extensions_go_with_the_token_of_an_endpoint(server: TokenServer) -> None:
    first = client(server.url("/token"), options='extension_logicalCluster="lkc-1"').exchange().first()
    assert first.endswith(b"\x01logicalCluster=lkc-1\x01\x01")
    with pytest.raises(SecuritySettingError, match="extension_auth is no SASL extension"):
        client(server.url("/token"), options='extension_auth="x"')


FAILURES: dict[str, tuple[list[Behaviour], str, int]] = {
    "wrong scope": ([fails(400, {"error": "invalid_scope"})], "HTTP status 400, invalid_scope", 1),
    "not found": ([fails(404, b"<html>")], "HTTP status 404", 1),
    "redirect": (
        [fails(302, b"", Location="http://u:p@127.0.0.1:1/else")],
        "it redirects to http://127.0.0.1/else: set that URL",
        1,
    ),
    "no token": ([fails(200, {"token": "x"})], "the answer has no access_token", 1),
    "a list": ([fails(200, [1])], "the answer has no access_token", 1),
    "nested": ([fails(200, b"[" * 500_000)], "the answer has no access_token", 1),
    "huge": ([never_ends], "an answer of more than 1048576 bytes", 1),
}


@pytest.mark.parametrize(("behaviours", "words", "requests"), FAILURES.values(), ids=FAILURES)
def test_a_permanent_failure_of_the_token_endpoint_is_reported_without_a_retry(
    server: TokenServer, behaviours: list[Behaviour], words: str, requests: int
) -> None:
    """What another attempt cannot mend is asked for once."""
    server.behaviours = behaviours
    security = client(server.url("/token"), sasl_login_retry_backoff_max_ms="500")
    with pytest.raises(SaslAuthenticationError, match=f"^no token from {server.url('/token')}: {words}"):
        security.exchange()
    assert len(server.requests) == requests


class SleepClock:
    """A clock that only sleep moves, in the place of the module `time`."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        """Return the seconds slept so far."""
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Return at once, later by this many seconds."""
        self._now_s += duration_s


@pytest.mark.parametrize(
    ("behaviour", "words"), [(fails(503), "HTTP status 503"), (speaks_ssh, "no HTTP answer")], ids=["503", "no HTTP"]
)
def test_temporary_failures_are_retried_until_the_maximum_backoff_is_used_up(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, behaviour: Behaviour, words: str
) -> None:
    """Waits of 1, 2, 4, ... 128 ms and of the 45 ms that are left of 300: ten requests."""
    monkeypatch.setattr(token_endpoint, "time", SleepClock())
    server.behaviours = [behaviour]
    with pytest.raises(SaslAuthenticationError, match=f"^no token from {server.url('/token')}: {words}"):
        client(server.url("/token")).exchange()
    assert server.requests == ["/token"] * 10


@pytest.mark.parametrize("behaviour", [hangs, drips, drips_body], ids=["silent", "slow header", "slow body"])
def test_a_slow_endpoint_is_given_up(server: TokenServer, behaviour: Behaviour) -> None:
    server.behaviours = [behaviour]
    changes = {"sasl_login_read_timeout_ms": "200", "sasl_login_retry_backoff_max_ms": "0"}
    with pytest.raises(SaslAuthenticationError, match=r"no answer within 0\.2 s"):
        client(server.url("/token"), **changes).exchange()


def test_an_endpoint_that_is_down_is_tried_again(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    server.behaviours = [fails(503), fails(500), well]
    changes = {"sasl_login_retry_backoff_max_ms": "30000"}
    with caplog.at_level(logging.WARNING):
        assert client(server.url("/token"), **changes).exchange().first()
    assert len(server.requests) == 3
    assert [record.getMessage().rpartition("; ")[2] for record in caplog.records] == [
        "trying again in 1 ms",
        "trying again in 2 ms",
    ]
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/token"
        with pytest.raises(SaslAuthenticationError, match="Connection refused"):
            client(url).exchange()


def test_a_secret_that_the_endpoint_repeats_is_hidden(server: TokenServer, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(SaslAuthenticationError) as refused:
        client(server.url("/token"), secret="wrong").exchange()
    assert "HTTP status 401, invalid_client: not planted-secret" in str(refused.value)
    server.behaviours = [fails(503, {"error": f"{SECRET}\n\x1b[2J"})]
    with pytest.raises(SaslAuthenticationError) as repeated:
        client(server.url("/token")).exchange()
    for text in (str(repeated.value), *(record.getMessage() for record in caplog.records)):
        assert SECRET not in text
        assert "\n" not in text
        assert "\x1b" not in text


def test_https_is_checked_by_the_options_of_the_login_module(secured_server: TokenServer, tmp_path: Path) -> None:
    url = secured_server.url("/token")
    right = written(tmp_path, "ca.pem", as_pem(authority().certificate))
    other = written(tmp_path, "other.pem", as_pem(other_authority().certificate))

    def options(path: str) -> str:
        return f'ssl.truststore.type="PEM" ssl.truststore.location="{path}"'

    assert client(url, options=options(right)).exchange().first()
    with pytest.raises(SaslAuthenticationError, match=r"SSL handshake failed: .*certificate"):
        client(url, options=options(other)).exchange()
    with pytest.raises(SaslAuthenticationError, match=r"SSL handshake failed: .*certificate"):
        client(url).exchange()
    with pytest.raises(SecuritySettingError, match=r"^sasl.jaas.config: ssl.truststore.location: cannot read /nowhere"):
        client(url, options=options("/nowhere"))
    with pytest.raises(SecuritySettingError, match=r"unknown option 'ssl.truststore.lokation'"):
        client(url, options='ssl.truststore.lokation="x"')


def test_an_old_token_serves_while_the_endpoint_is_down(caplog: pytest.LogCaptureFixture) -> None:
    fetched: list[str] = []

    def fetch() -> str:
        if fetched:
            raise SaslAuthenticationError("the endpoint is down")
        with token_server() as running:
            fetched.append(running.token(exp=time.time() + 100))
        return fetched[0]

    source = TokenSource(fetch, RefreshRules(window_factor=0.0, window_jitter=0.0))
    assert source.token().value == fetched[0]
    assert source.token().value == fetched[0]
    assert "the present token is used on: the endpoint is down" in caplog.text


# --- key sets


def check(server: TokenServer, **claims: object) -> str:
    """Return the user of a token of the server, checked by its present keys."""
    tokens = SignedTokens(server.url("/jwks"), ClaimRules(required_scope=frozenset({SCOPE})), limits=LIMITS)
    tokens.load()
    return tokens.check(server.token(**claims)).principal_name


def test_a_rotated_key_is_reported_as_unknown_until_the_key_set_is_reloaded(server: TokenServer) -> None:
    tokens = SignedTokens(server.url("/jwks"), ClaimRules())
    asked: list[None] = []
    tokens.on_unknown_key = lambda: asked.append(None)
    tokens.load()
    assert tokens.check(server.token()).principal_name == "olga"
    server.rotate()
    with pytest.raises(InvalidTokenError, match="no key with the token's kid"):
        tokens.check(server.token())
    assert asked == [None]
    tokens.load()
    assert tokens.check(server.token()).principal_name == "olga"


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": time.time() - 3600}, "expired"),
        ({"scope": "other"}, "required scope"),
        ({"sub": None}, "claim sub"),
        ({"iat": time.time() + 3600}, "in the future"),
    ],
)
def test_a_signed_token_with_invalid_claims_is_refused(
    server: TokenServer, claims: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidTokenError, match=words):
        check(server, **claims)


def test_keys_of_unknown_types_do_not_hide_the_others(server: TokenServer) -> None:
    mixed = [{"kty": "NEW", "kid": "a"}, 5, {"kty": "RSA"}, {"kty": "OKP", "crv": "Ed25519", "x": "AA"}]
    known = server.key.as_dict(private=False)
    encryption = {**new_key("enc").as_dict(private=False), "use": "enc"}
    server.key_behaviours = [fails(200, {"keys": [*mixed, encryption, known]})]
    assert check(server) == "olga"


@pytest.mark.parametrize(
    "behaviour",
    [
        fails(503),
        fails(200, b"[" * 500_000),
        fails(200, {"keys": []}),
        fails(200, {"keys": 5}),
        fails(200, [1]),
        fails(302, b"", Location="https://localhost:1/"),
        fails(302, b"", Location="/jwks"),
        hangs,
        drips,
        drips_body,
        never_ends,
    ],
)
def test_a_failed_reload_of_the_key_set_keeps_the_present_keys(server: TokenServer, behaviour: Behaviour) -> None:
    tokens = SignedTokens(server.url("/jwks"), ClaimRules(), limits=LIMITS)
    tokens.load()
    server.key_behaviours = [behaviour]
    with pytest.raises((HttpError, ValueError)):
        tokens.load()
    assert tokens.check(server.token()).principal_name == "olga"


def test_a_redirect_of_a_key_set_is_followed(server: TokenServer) -> None:
    server.key_behaviours = [fails(301, b"", Location="/keys"), well]
    assert check(server) == "olga"
    assert server.requests == ["/jwks", "/keys"]
