"""SCRAM: a published exchange, refused exchanges, and what an attacker can learn."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.security import scram
from gregor.security.errors import SaslAuthenticationError, SaslError
from gregor.security.password import Password
from gregor.security.sasl import SCRAM_MECHANISMS, SCRAM_SHA_256
from gregor.security.scram import KnownCredential, ScramClient, ScramCredential, ScramServer

SECRET = Password("pencil")
CREDENTIALS = {name: ScramCredential.of_password(name, SECRET) for name in SCRAM_MECHANISMS}


def server(mechanism: str = SCRAM_SHA_256, known: str = "user") -> ScramServer:
    def find(name: str, is_token: bool) -> KnownCredential | None:
        if is_token:
            return KnownCredential(CREDENTIALS[mechanism], "owner", token_authenticated=True) if name == "id" else None
        return KnownCredential(CREDENTIALS[mechanism], name) if name == known else None

    return ScramServer(mechanism, find)


def run(client: ScramClient, of: ScramServer) -> None:
    token: bytes | None = client.first()
    while token is not None:
        token = client.respond(of.respond(token))


def test_the_exchange_of_rfc_7677_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    nonces = iter(["rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"])
    monkeypatch.setattr(scram, "_nonce", lambda: next(nonces))
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password(SCRAM_SHA_256, SECRET, 4096, salt)
    client = ScramClient(SCRAM_SHA_256, "user", SECRET)
    of = ScramServer(SCRAM_SHA_256, lambda name, is_token: KnownCredential(credential, name))
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = of.respond(client.first())
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    proof = client.respond(challenge)
    assert proof is not None
    assert proof.endswith(b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    outcome = of.respond(proof)
    assert outcome == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.respond(outcome) is None


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize("user", ["user", "a,b=c", "=2C", "Zoë"])
def test_a_user_with_the_password_is_authenticated(mechanism: str, user: str) -> None:
    of = server(mechanism, user)
    run(ScramClient(mechanism, user, SECRET), of)
    assert (of.authorization_id, of.token_authenticated) == (user, False)


def test_a_token_authenticates_its_owner_and_only_as_a_token() -> None:
    of = server()
    run(ScramClient(SCRAM_SHA_256, "id", SECRET, is_token=True), of)
    assert (of.authorization_id, of.token_authenticated) == ("owner", True)
    with pytest.raises(SaslError, match="Invalid client credentials"):
        run(ScramClient(SCRAM_SHA_256, "id", SECRET), server())
    with pytest.raises(SaslError, match="Invalid client credentials"):
        run(ScramClient(SCRAM_SHA_256, "user", SECRET, is_token=True), server())


@pytest.mark.parametrize("mechanism", SCRAM_MECHANISMS)
@pytest.mark.parametrize(("iterations", "is_long"), [(4096, False), (8192, False), (8193, True), (16384, True)])
def test_more_than_8192_iterations_are_computed_as_long_work_before_the_answer(
    mechanism: str, iterations: int, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work in a thread is that of the answer, which then computes nothing: also with other bytes around the token."""
    credential = ScramCredential.of_password(mechanism, SECRET, iterations)
    of = ScramServer(mechanism, lambda name, is_token: KnownCredential(credential, name))
    client = ScramClient(mechanism, "user", SECRET)
    challenge = of.respond(client.first())
    work = client.long_work(b"\0\0\0\0\x54" + challenge + b"\0\0")
    assert (work is not None) == is_long
    if work is not None:
        work()
        monkeypatch.setattr(scram, "salted_password", None)
    proof = client.respond(challenge)
    assert proof is not None
    outcome = of.respond(proof)
    assert client.long_work(b"r=x,s=eA==,i=100000") is None, "after the proof nothing takes long"
    assert client.respond(outcome) is None


@pytest.mark.parametrize(
    "answer", [b"", b"r=x,s=e!==,i=100000", b"r=x,s=e,i=100000", b"r=x,s=eA==,i=1048577", b"\0\xff,s=eA==,i=1"]
)
def test_an_invalid_challenge_causes_no_long_work(answer: bytes) -> None:
    assert ScramClient(SCRAM_SHA_256, "user", SECRET).long_work(answer) is None


def test_an_unknown_user_cannot_be_told_from_a_wrong_password() -> None:
    """Steps, sizes and errors are equal, and the salt of an unknown user never changes."""
    salts = []
    for user in ("user", "nobody", "nobody"):
        of, client = server(), ScramClient(SCRAM_SHA_256, user, Password("wrong"))
        challenge = of.respond(client.first())
        found = re.fullmatch(rb"r=([0-9a-f]{64}),s=([A-Za-z0-9+/=]{24}),i=4096", challenge)
        assert found is not None
        salts.append(found[2])
        proof = client.respond(challenge)
        assert proof is not None
        with pytest.raises(SaslError, match=r"^Invalid client credentials$"):
            of.respond(proof)
        assert of.authorization_id is None
    assert salts[1] == salts[2] != salts[0]


def test_a_replayed_exchange_fails() -> None:
    of, client = server(), ScramClient(SCRAM_SHA_256, "user", SECRET)
    first = client.first()
    proof = client.respond(of.respond(first))
    assert proof is not None
    of.respond(proof)
    assert of.authorization_id == "user"
    again = server()
    again.respond(first)
    with pytest.raises(SaslError, match="Invalid client nonce"):
        again.respond(proof)
    with pytest.raises(SaslError, match="format"):
        server().respond(proof)


def test_a_client_that_repeats_its_nonce_is_authenticated() -> None:
    """librdkafka before 2.8 repeats its nonce, which Kafka accepts; the proof covers the nonce as it was sent."""
    of = server()
    nonce = "abc"
    bare = f"n=user,r={nonce}"
    challenge = of.respond(f"n,,{bare}".encode()).decode()
    unproven = f"c=biws,r={nonce}{challenge.split(',')[0][2:]}"
    salted = scram.salted_password(SCRAM_SHA_256, SECRET, CREDENTIALS[SCRAM_SHA_256].salt, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{bare},{challenge},{unproven}".encode(), "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    of.respond(f"{unproven},p={proof}".encode())
    assert of.authorization_id == "user"


def test_a_client_refuses_a_wrong_server_signature() -> None:
    client = ScramClient(SCRAM_SHA_256, "user", SECRET)
    client.respond(server().respond(client.first()))
    for outcome in (b"v=" + base64.b64encode(bytes(32)), b"e=other-error", b"", b"v=", b"\xff"):
        with pytest.raises(SaslAuthenticationError):
            client.respond(outcome)


@pytest.mark.parametrize(
    "challenge",
    [
        "r={nonce},s=AAAA,i=4096",
        "r=other,s=AAAA,i=4096",
        "r={nonce}x,s=AAAA,i=1",
        "r={nonce}x,s=AAAA,i=999999999",
        "r={nonce}x,s=*,i=4096",
        "r={nonce}x,i=4096",
        "",
    ],
)
def test_a_client_refuses_a_weak_or_malformed_challenge(challenge: str) -> None:
    client = ScramClient(SCRAM_SHA_256, "user", SECRET)
    nonce = client.first().decode().rpartition("r=")[2]
    with pytest.raises(SaslAuthenticationError):
        client.respond(challenge.format(nonce=nonce).encode())


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_garbage_is_refused_and_never_authenticates(tokens: list[bytes]) -> None:
    of = server()
    for token in tokens:
        with pytest.raises((SaslError, SaslAuthenticationError)):
            of.respond(token)
    assert of.authorization_id is None


@given(position=st.integers(0, 200), byte=st.integers(0, 255))
def test_any_changed_byte_of_a_proof_is_refused(position: int, byte: int) -> None:
    of, client = server(), ScramClient(SCRAM_SHA_256, "user", SECRET)
    proof = client.respond(of.respond(client.first()))
    assert proof is not None
    changed = bytearray(proof)
    changed[position % len(changed)] = byte
    if bytes(changed) == proof or base64.b64decode(changed[-44:] + b"==") == base64.b64decode(proof[-44:]):
        return
    with pytest.raises((SaslError, SaslAuthenticationError)):
        of.respond(bytes(changed))
    assert of.authorization_id is None


def test_credentials_do_not_show_their_keys() -> None:
    shown = repr(CREDENTIALS[SCRAM_SHA_256])
    assert "iterations=4096" in shown
    assert "key" not in shown
    assert hashlib.sha256(b"").hexdigest() not in shown
