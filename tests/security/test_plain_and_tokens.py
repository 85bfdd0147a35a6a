"""PLAIN and OAUTHBEARER: accepted credentials and tokens, and the message of each refusal."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey

from gregor.security.errors import SaslAuthenticationError, SaslError, SecuritySettingError
from gregor.security.jaas import parse_jaas
from gregor.security.oauthbearer import AcceptedToken, InvalidTokenError, OAuthBearerClient, OAuthBearerServer
from gregor.security.password import Password
from gregor.security.plain import PlainClient, PlainServer
from gregor.security.token_checks import ClaimRules, SignedTokens, UnsecuredTokens
from gregor.security.token_sources import TokenSource, UnsecuredToken

USERS = {"alice": Password("alice-secret"), "Zoë": Password("geheim ✓")}
LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required {};"


@pytest.mark.parametrize(("user", "password"), [("alice", "alice-secret"), ("Zoë", "geheim ✓")])
def test_plain_authenticates_a_user_with_the_right_password(user: str, password: str) -> None:
    of = PlainServer(USERS)
    assert of.respond(PlainClient(user, Password(password)).first()) == b""
    assert of.authorization_id == user


@pytest.mark.parametrize(
    ("token", "refusal"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0alice\0alice-secre", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0alice-secret", "Authentication failed: Invalid username or password"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"bob\0alice\0alice-secret", "authorization id that is different from username"),
        (b"alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "expected 3 tokens"),
        (b"\0alice\0\xff", "not UTF-8"),
    ],
)
def test_plain_refuses_in_kafkas_words(token: bytes, refusal: str) -> None:
    of = PlainServer(USERS)
    with pytest.raises(SaslAuthenticationError, match=refusal):
        of.respond(token)
    assert of.authorization_id is None


@given(st.binary(max_size=80))
def test_plain_survives_garbage(token: bytes) -> None:
    of = PlainServer(USERS)
    with pytest.raises(SaslAuthenticationError):
        of.respond(token)


# --- OAUTHBEARER


def accept_any(token: str) -> AcceptedToken:
    return AcceptedToken("alice", 5_000)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"\xff",
    ],
)
def test_a_malformed_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthBearerServer(accept_any).respond(message)


def test_an_authorization_id_must_be_the_tokens_principal() -> None:
    of = OAuthBearerServer(accept_any)
    with pytest.raises(
        SaslAuthenticationError, match=r"\(bob\) that is different from the token's principal name \(alice\)"
    ):
        of.respond(b"n,a=bob,\x01auth=Bearer abc\x01\x01")
    assert OAuthBearerServer(accept_any).respond(b"n,a=alice,\x01auth=Bearer abc\x01x=y\x01\x01") == b""


def test_a_refused_token_is_answered_in_two_steps_without_the_reason() -> None:
    def refuse(token: str) -> AcceptedToken:
        raise InvalidTokenError("the token has expired")

    of = OAuthBearerServer(refuse)
    client = OAuthBearerClient(Password("abc"))
    challenge = of.respond(client.first())
    assert json.loads(challenge) == {"status": "invalid_token"}
    answer = client.respond(challenge)
    assert answer == b"\x01"
    with pytest.raises(SaslAuthenticationError, match="invalid_token"):
        of.respond(answer)
    assert of.reason == "the token has expired"
    assert of.authorization_id is None


@given(st.binary(max_size=100))
def test_oauthbearer_survives_garbage(message: bytes) -> None:
    of = OAuthBearerServer(UnsecuredTokens(None).check)
    with contextlib.suppress(SaslError, SaslAuthenticationError):
        of.respond(message)
    assert of.authorization_id is None


# --- unsecured tokens


def test_an_unsecured_token_of_a_login_module_is_accepted() -> None:
    source = TokenSource(UnsecuredToken(parse_jaas(LOGIN.format('unsecuredLoginStringClaim_sub="alice"'))))
    accepted = UnsecuredTokens(None).check(source.token().value)
    assert accepted.principal_name == "alice"
    assert abs(accepted.expires_at_ms / 1000 - time.time() - 3600) < 60
    assert source.token() == source.token()


def unsecured(claims: dict[str, Any], head: dict[str, Any] | None = None, signature: str = "") -> str:
    parts = [json.dumps(part).encode() for part in (head or {"alg": "none"}, claims)]
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), signature])


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (unsecured({"sub": "a", "exp": 999}), "expired"),
        (unsecured({"sub": "a"}), "exp is missing"),
        (unsecured({"exp": 2000}), "sub is missing"),
        (unsecured({"sub": 5, "exp": 2000}), "sub is missing"),
        (unsecured({"sub": "a", "exp": "soon"}), "exp is not a time"),
        (unsecured({"sub": "a", "exp": True}), "exp is not a time"),
        (unsecured({"sub": "a", "exp": 2000, "iat": 1500}), "iat is in the future"),
        (unsecured({"sub": "a", "exp": 2000, "nbf": 1500}), "nbf is in the future"),
        (unsecured({"sub": "a", "exp": 2000}, signature="abc"), "signature"),
        (unsecured({"sub": "a", "exp": 2000}, {"alg": "HS256"}), "signature"),
        ("a.b", "3 parts"),
        ("a.b.c", "signature|no JSON"),
        (".." + "W10", "no JSON|signature"),
    ],
)
def test_an_invalid_unsecured_token_is_refused_with_the_reason(token: str, reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        UnsecuredTokens(None, now=lambda: 1000.0).check(token)


def test_a_scope_may_be_required() -> None:
    check = UnsecuredTokens(
        parse_jaas(LOGIN.format('unsecuredValidatorRequiredScope="read write"')), now=lambda: 0.0
    ).check
    assert check(unsecured({"sub": "a", "exp": 9, "scope": ["write", "read", "x"]})).principal_name == "a"
    assert check(unsecured({"sub": "a", "exp": 9, "scope": "read write"})).principal_name == "a"
    with pytest.raises(InvalidTokenError, match="scope"):
        check(unsecured({"sub": "a", "exp": 9, "scope": "read"}))


# --- signed tokens

KEY = RSAKey.generate_key(2048, {"kid": "one"})
CURVE = ECKey.generate_key("P-256", {"kid": "two"})
SHARED = OctKey.generate_key(256, {"kid": "three"})
CLAIMS = {"sub": "alice", "iat": 1000, "exp": 2000, "iss": "https://issuer", "aud": ["kafka", "other"]}


def signed_tokens(tmp_path: Path, rules: ClaimRules | None = None) -> SignedTokens:
    path = tmp_path / "jwks.json"
    keys = KeySet([KEY, CURVE, SHARED]).as_dict(private=False)["keys"]
    path.write_text(json.dumps({"keys": [*keys, SHARED.as_dict(private=True)]}))
    tokens = SignedTokens(path.as_uri(), rules or ClaimRules(), now=lambda: 1500.0)
    tokens.load()
    return tokens


@pytest.mark.parametrize(("algorithm", "key"), [("RS256", KEY), ("PS512", KEY), ("ES256", CURVE)])
@pytest.mark.parametrize("names_key", [True, False])
def test_a_token_signed_by_a_key_of_the_set_is_accepted(
    tmp_path: Path, algorithm: str, key: RSAKey | ECKey, names_key: bool
) -> None:
    header = {"alg": algorithm, **({"kid": key.kid} if names_key else {})}
    token = jwt.encode(header, CLAIMS, key, algorithms=[algorithm])
    rules = ClaimRules(audience=frozenset({"kafka"}), issuer="https://issuer")
    assert signed_tokens(tmp_path, rules).check(token) == AcceptedToken("alice", 2_000_000)


@pytest.mark.parametrize(
    ("claims", "rules", "reason"),
    [
        ({"exp": 1400}, ClaimRules(), "expired"),
        ({"exp": 1480}, ClaimRules(clock_skew_s=0), "expired"),
        ({"iat": None}, ClaimRules(), "iat is missing"),
        ({"aud": "kafka other"}, ClaimRules(audience=frozenset({"kafka"})), "audience"),
        ({"aud": None}, ClaimRules(audience=frozenset({"kafka"})), "audience"),
        ({"iss": "https://other"}, ClaimRules(issuer="https://issuer"), "issuer"),
        ({"sub": " "}, ClaimRules(), "sub"),
        ({}, ClaimRules(subject_claim="client_id"), "client_id"),
    ],
)
def test_a_signed_token_needs_its_claims(
    tmp_path: Path, claims: dict[str, Any], rules: ClaimRules, reason: str
) -> None:
    merged = {name: value for name, value in (CLAIMS | claims).items() if value is not None}
    token = jwt.encode({"alg": "RS256", "kid": "one"}, merged, KEY)
    with pytest.raises(InvalidTokenError, match=reason):
        signed_tokens(tmp_path, rules).check(token)


def test_a_token_not_signed_by_a_key_of_the_set_is_refused(tmp_path: Path) -> None:
    tokens = signed_tokens(tmp_path)
    stranger = RSAKey.generate_key(2048, {"kid": "one"})
    unknown: list[str] = []
    tokens.on_unknown_key = lambda: unknown.append("asked")
    right = jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, KEY)
    head, body, signature = right.split(".")
    # The known attack: a public key is used as the shared secret of HMAC.
    confused = jwt.encode({"alg": "HS256", "kid": "three"}, CLAIMS, SHARED)
    for token in (
        jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, stranger),
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-6]}AAAAAA",
        unsecured(CLAIMS, {"alg": "none", "kid": "one"}),
        unsecured(CLAIMS),
        confused,
        "x",
        "..",
    ):
        with pytest.raises(InvalidTokenError):
            tokens.check(token)
    unknown.clear()
    with pytest.raises(InvalidTokenError, match="kid"):
        tokens.check(jwt.encode({"alg": "RS256", "kid": "new"}, CLAIMS, stranger))
    assert unknown == ["asked"]


def test_an_invalid_or_missing_key_set_is_an_error(tmp_path: Path) -> None:
    for content in ("", "[]", '{"keys": 5}', '{"keys": [{"kty": "RSA"}]}', "{}"):
        (tmp_path / "k").write_text(content)
        with pytest.raises(ValueError):
            SignedTokens((tmp_path / "k").as_uri(), ClaimRules()).load()
    with pytest.raises(OSError, match="absent"):
        SignedTokens((tmp_path / "absent").as_uri(), ClaimRules()).load()
    with pytest.raises(SecuritySettingError, match=r"jwks\.endpoint\.url"):
        SignedTokens("ftp://host/keys", ClaimRules())
