"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), with Kafka's ``tokenauth`` extension for delegation tokens (KIP-48)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from .errors import SaslAuthenticationError, SaslError
from .password import Password
from .sasl import SCRAM_SHA_256, SCRAM_SHA_512

DIGESTS = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
MOST_CLIENT_ITERATIONS = 1 << 20
"""Most iterations that a client computes for a server, which chooses their number; Kafka's client has no such limit.

They take about a second. Kafka's brokers have at most `MOST_ITERATIONS`.
"""
LONG_ITERATIONS = 8192
"""Iterations above which a client computes in a thread: these take about 5 ms."""
NONCE_BYTES = 16
SALT_BYTES = 16
TOKEN_EXTENSION = "tokenauth"  # noqa: S105 (the name of an extension)

_VALUE = r"[\x01-\x2b\x2d-\x7f\u0080-\U0010ffff]+"
_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f\u0080-\U0010ffff]|=2C|=3D)+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
# The module `re` compiles these at their first use: at import this would take a tenth of a program's start.
_FIRST = (
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*))"
)
_CHALLENGE = (
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}})"
    rf"(?:,[A-Za-z]+={_VALUE})*"
)
_FINAL = (
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,[A-Za-z]+={_VALUE})*),p=(?P<proof>{_BASE64})"
)
_COST = rb",s=([A-Za-z0-9+/]*={0,2}),i=([0-9]{1,9})"
_OUTCOME = rf"(?:e=(?P<error>{_VALUE})|v=(?P<verifier>{_BASE64}))(?:,[A-Za-z]+={_VALUE})*"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A user's verifier: no password can be computed from it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted_password(cls, mechanism: str, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
        """Return the credential of a password that was salted and iterated already."""
        digest = DIGESTS[mechanism]
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        return cls(salt, stored_key, hmac.digest(salted, b"Server Key", digest), iterations)

    @classmethod
    def of_password(
        cls, mechanism: str, password: Password, iterations: int = FEWEST_ITERATIONS, salt: bytes | None = None
    ) -> ScramCredential:
        """Return the credential of a password, with a random salt unless one is given."""
        salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
        return cls.of_salted_password(
            mechanism, salt, salted_password(mechanism, password, salt, iterations), iterations
        )


def salted_password(mechanism: str, password: Password, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, iterations) of RFC 5802; like Kafka, without SASLprep."""
    return hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.value.encode(), salt, iterations)


@dataclass(frozen=True, slots=True)
class KnownCredential:
    """A credential that a server found, with the name that the client gets by it."""

    credential: ScramCredential
    authorization_id: str
    token_authenticated: bool = False
    expires_at_ms: int | None = None


CredentialLookup = Callable[[str, bool], KnownCredential | None]
"""Finds the credential of a user, or of a delegation token if the second argument is true."""

_DECOY_KEY = os.urandom(32)
"""The key from which this process derives the salts of unknown users while there are no known ones."""


class ScramServer:
    """The server's side of one exchange.

    An unknown user gets a salt too, the same one each time, and fails where a wrong password fails: so a client cannot
    find out which users exist. Kafka refuses an unknown user one step earlier.
    """

    def __init__(
        self, mechanism: str, find: CredentialLookup, model: Callable[[], ScramCredential | None] | None = None
    ) -> None:
        """Begin an exchange; unknown users get a salt and iterations as those of the credential that ``model`` returns.

        With the same credential on each server of a cluster, an unknown user gets the same salt from each.
        """
        self._model = model
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._find = find
        self._known: KnownCredential | None = None
        self._credential = ScramCredential(b"", b"", b"", 0)
        self._nonce = ""
        self._messages = ""
        self.authorization_id: str | None = None
        self.token_authenticated = False
        self.expires_at_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Answer the client's first or final message; see `ServerExchange.respond`."""
        text = _text(token)
        return self._finish(text) if self._nonce else self._challenge(text)

    def _challenge(self, text: str) -> bytes:
        found = re.fullmatch(_FIRST, text)
        if found is None:
            raise SaslError("Invalid SCRAM client first message format")
        name = _unescaped(found["name"])
        extensions = dict(pair.split("=", 1) for pair in found["extensions"].split(",") if pair)
        if found["authzid"] is not None and _unescaped(found["authzid"]) != name:
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        is_token = extensions.get(TOKEN_EXTENSION, "").lower() == "true"
        self._known = self._find(name, is_token)
        self._credential = self._known.credential if self._known else self._decoy(name)
        self._nonce = found["nonce"] + _nonce()
        salt = base64.b64encode(self._credential.salt).decode()
        challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._messages = f"{found['bare']},{challenge}"
        return challenge.encode()

    def _finish(self, text: str) -> bytes:
        found = re.fullmatch(_FINAL, text)
        if found is None:
            raise SaslError("Invalid SCRAM client final message format")
        # Only the end is compared, as in Kafka: librdkafka before 2.8 repeats the client's part of the nonce.
        if not found["nonce"].endswith(self._nonce):
            raise SaslError("Invalid client nonce in the final client message.")
        messages = f"{self._messages},{found['unproven']}".encode()
        proof = _decoded(found["proof"])
        signature = hmac.digest(self._credential.stored_key, messages, self._digest)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        computed = hashlib.new(self._digest, client_key).digest()
        is_right = hmac.compare_digest(computed, self._credential.stored_key) and len(proof) == len(signature)
        if self._known is None or not is_right:
            raise SaslError("Invalid client credentials")
        self.authorization_id = self._known.authorization_id
        self.token_authenticated = self._known.token_authenticated
        self.expires_at_ms = self._known.expires_at_ms
        verifier = hmac.digest(self._credential.server_key, messages, self._digest)
        return b"v=" + base64.b64encode(verifier)

    def _decoy(self, name: str) -> ScramCredential:
        model = self._model() if self._model is not None else None
        if model is None:
            model = ScramCredential(bytes(SALT_BYTES), b"", _DECOY_KEY, FEWEST_ITERATIONS)
        blocks = range(len(model.salt) // hashlib.new(self._digest).digest_size + 1)
        salt = b"".join(
            hmac.digest(model.server_key, f"decoy {block} {name}".encode(), self._digest) for block in blocks
        )
        key = secrets.token_bytes(hashlib.new(self._digest).digest_size)
        return ScramCredential(salt[: len(model.salt)], key, key, model.iterations)


class ScramClient:
    """The client's side of one exchange; ``is_token`` says that name and password are a delegation token's."""

    def __init__(self, mechanism: str, username: str, password: Password, *, is_token: bool = False) -> None:
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._password = password
        self._nonce = _nonce()
        extension = f",{TOKEN_EXTENSION}=true" if is_token else ""
        self._bare = f"n={_escaped(username)},r={self._nonce}{extension}"
        self._verifier: bytes | None = None
        self._salted: tuple[bytes, int, bytes] | None = None
        """Salt, iterations and salted password that `long_work` has computed."""

    def first(self) -> bytes:
        """Return the client's first message."""
        return f"n,,{self._bare}".encode()

    def long_work(self, answer: bytes) -> Callable[[], object] | None:
        """Return the computation of the salted password if the server demands many iterations.

        See `ClientExchange.long_work`.
        """
        found = re.search(_COST, answer) if self._verifier is None else None
        iterations = int(found[2]) if found else 0
        if found is None or not LONG_ITERATIONS < iterations <= MOST_CLIENT_ITERATIONS:
            return None
        try:
            salt = _decoded(found[1].decode())
        except SaslError:
            return None
        return partial(self._salted_password, salt, iterations)

    def respond(self, challenge: bytes) -> bytes | None:
        """Answer the server's first message, or check its final one; see `ClientExchange.respond`."""
        try:
            text = _text(challenge)
            if self._verifier is None:
                return self._prove(text)
            self._check(text)
            return None
        except SaslError as error:
            raise SaslAuthenticationError(str(error)) from None

    def _prove(self, challenge: str) -> bytes:
        found = re.fullmatch(_CHALLENGE, challenge)
        if found is None:
            raise SaslError("Invalid SCRAM server first message format")
        if not found["nonce"].startswith(self._nonce) or found["nonce"] == self._nonce:
            raise SaslError("Invalid server nonce: does not start with client nonce")
        iterations = int(found["iterations"])
        if not FEWEST_ITERATIONS <= iterations <= MOST_CLIENT_ITERATIONS:
            raise SaslError(
                f"Requested iterations {iterations} is less than the minimum {FEWEST_ITERATIONS} for {self._mechanism}"
                if iterations < FEWEST_ITERATIONS
                else f"the server demands {iterations} iterations, more than {MOST_CLIENT_ITERATIONS}"
            )
        salted = self._salted_password(_decoded(found["salt"]), iterations)
        unproven = f"c=biws,r={found['nonce']}"
        messages = f"{self._bare},{challenge},{unproven}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._digest)
        signature = hmac.digest(hashlib.new(self._digest, client_key).digest(), messages, self._digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = hmac.digest(hmac.digest(salted, b"Server Key", self._digest), messages, self._digest)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def _salted_password(self, salt: bytes, iterations: int) -> bytes:
        """Return the salted password, which is computed once."""
        if self._salted is None or self._salted[:2] != (salt, iterations):
            salted = salted_password(self._mechanism, self._password, salt, iterations)
            self._salted = (salt, iterations, salted)
        return self._salted[2]

    def _check(self, outcome: str) -> None:
        found = re.fullmatch(_OUTCOME, outcome)
        if found is None:
            raise SaslError("Invalid SCRAM server final message format")
        if found["error"] is not None:
            raise SaslError(f"Sasl authentication using {self._mechanism} failed with error: {found['error']}")
        if not hmac.compare_digest(_decoded(found["verifier"]), self._verifier or b""):
            raise SaslError("Invalid server signature in server final message")


def _nonce() -> str:
    return secrets.token_hex(NONCE_BYTES)


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslError("Invalid SCRAM message: it is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("Invalid SCRAM message: it has malformed base64") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
