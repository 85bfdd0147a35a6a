"""Checks of the tokens of OAUTHBEARER clients: signed ones (JWT, RFC 7519) and, for development, unsecured ones.

Rules and defaults are those of Kafka's ``ValidatorAccessTokenValidator`` and of its unsecured validator.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from .errors import SecuritySettingError
from .jaas import JaasEntry
from .login_rules import DEFAULT_LIMITS, HttpLimits
from .oauthbearer import AcceptedToken, InvalidTokenError

if TYPE_CHECKING:
    from joserfc.jwk import Key

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
"""Signatures by a private key only: with a shared secret, anyone who reads the JWKS could sign."""
LARGEST_KEY_SET_BYTES = 1 << 20
MOST_KEYS_TRIED = 8
"""Most keys that are tried for a token that names none: each try costs processor time."""
KEY_TYPES = ("RSA", "EC")
URL_SCHEMES = ("https://", "http://", "file:")

Now = Callable[[], float]
"""Returns the time in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The claims that a token must have."""

    audience: frozenset[str] = frozenset()
    issuer: str | None = None
    subject_claim: str = "sub"
    scope_claim: str = "scope"
    required_scope: frozenset[str] = frozenset()
    clock_skew_s: float = 30.0
    needs_issue_time: bool = True

    def accept(self, claims: Mapping[str, Any], now_s: float) -> AcceptedToken:
        """Return the accepted token. Raises InvalidTokenError."""
        subject = claims.get(self.subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise InvalidTokenError(f"the claim {self.subject_claim} is missing or is not a string")
        expires_s = _time(claims, "exp")
        if expires_s is None:
            raise InvalidTokenError("the claim exp is missing")
        if now_s - self.clock_skew_s >= expires_s:
            raise InvalidTokenError("the token has expired")
        issued_s = _time(claims, "iat")
        if issued_s is None and self.needs_issue_time:
            raise InvalidTokenError("the claim iat is missing")
        for name, begins_s in (("iat", issued_s), ("nbf", _time(claims, "nbf"))):
            if begins_s is not None and begins_s > now_s + self.clock_skew_s:
                raise InvalidTokenError(f"the time in {name} is in the future")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidTokenError("the claim iss is not sasl.oauthbearer.expected.issuer")
        if self.audience and not self.audience & _texts(claims.get("aud"), divided=False):
            raise InvalidTokenError("the claim aud has none of sasl.oauthbearer.expected.audience")
        if not self.required_scope <= _texts(claims.get(self.scope_claim)):
            raise InvalidTokenError("the token does not have the required scope")
        return AcceptedToken(subject, int(expires_s * 1000))


class UnsecuredTokens:
    """A check of tokens without a signature, for development: anyone can make such a token."""

    def __init__(self, options: JaasEntry | None, now: Now = time.time) -> None:
        """Take the options ``unsecuredValidator...`` of a listener's login module. Raises SecuritySettingError."""

        def option(name: str, default: str) -> str:
            return (options.option(f"unsecuredValidator{name}") if options else None) or default

        skew = option("AllowableClockSkewMs", "0")
        if not (skew.isascii() and skew.isdecimal()):
            raise SecuritySettingError("sasl.jaas.config: unsecuredValidatorAllowableClockSkewMs must be a number")
        self._now = now
        self._rules = ClaimRules(
            subject_claim=option("PrincipalClaimName", "sub"),
            scope_claim=option("ScopeClaimName", "scope"),
            required_scope=frozenset(option("RequiredScope", "").split()),
            clock_skew_s=int(skew) / 1000,
            needs_issue_time=False,
        )

    def check(self, token: str) -> AcceptedToken:
        """Check a token; see `oauthbearer.TokenCheck`."""
        parts = token.split(".")
        if len(parts) != 3:
            raise InvalidTokenError(f"a token has 3 parts, not {len(parts)}")
        if parts[2] or _json(parts[0]).get("alg") != "none":
            raise InvalidTokenError("the token has a signature, and this listener accepts unsecured tokens only")
        return self._rules.accept(_json(parts[1]), self._now())


class SignedTokens:
    """A check of tokens by the keys of a JWKS, which `load` reads from a file or a URL."""

    def __init__(
        self,
        url: str,
        rules: ClaimRules,
        now: Now = time.time,
        limits: HttpLimits = DEFAULT_LIMITS,
        context: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Set where the keys are; ``context`` makes the TLS context of an https URL. Raises SecuritySettingError."""
        if not url.startswith(URL_SCHEMES):
            raise SecuritySettingError(f"sasl.oauthbearer.jwks.endpoint.url: {url} is not an https, http or file URL")
        self._url = url
        self._rules = rules
        self._now = now
        self._limits = limits
        self._context = context
        self._keys: list[Key] | None = None
        self.on_unknown_key: Callable[[], None] = _do_nothing
        """Called when a token names a key that is not known: the keys may have been changed."""

    def load(self) -> None:
        """Read the keys, which blocks. Raises OSError, HttpError, or ValueError for other content.

        Keys of types that this program does not know, and keys for encryption, are left out (RFC 7517, section 5).
        """
        from joserfc.errors import JoseError
        from joserfc.jwk import JWKRegistry

        try:
            listed = json.loads(self._content())["keys"]
        except (KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"no JWKS: {type(error).__name__}") from None
        keys = []
        for described in listed if isinstance(listed, list) else ():
            try:
                key = JWKRegistry.import_key(described)
            except (JoseError, ValueError, KeyError, TypeError, AttributeError):
                continue
            if key.key_type in KEY_TYPES and described.get("use", "sig") == "sig":
                keys.append(key)
        if not keys:
            raise ValueError("no JWKS: it has no public key of the types RSA and EC")
        self._keys = keys

    def _content(self) -> bytes:
        if self._url.startswith("file:"):
            with Path(unquote(urlsplit(self._url).path)).open("rb") as file:
                data = file.read(LARGEST_KEY_SET_BYTES + 1)
            if len(data) > LARGEST_KEY_SET_BYTES:
                raise ValueError(f"a JWKS of more than {LARGEST_KEY_SET_BYTES} bytes")
            return data
        from .bounded_http import fetch

        return fetch(self._url, self._limits, headers={"Accept": "application/json"}, context=self._context)

    def check(self, token: str) -> AcceptedToken:
        """Check a token; see `oauthbearer.TokenCheck`."""
        return self._rules.accept(self._verified_claims(token), self._now())

    def _verified_claims(self, token: str) -> Mapping[str, Any]:
        """Return the claims that one of the keys signed: that with the token's kid, or any if it names none."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        if self._keys is None:
            raise InvalidTokenError("the JWKS has not been loaded yet")
        head = _json(token.partition(".")[0])
        key_id = head.get("kid")
        key_type = "EC" if str(head.get("alg")).startswith("ES") else "RSA"
        keys = [key for key in self._keys if key.key_type == key_type and key_id in (None, key.kid)]
        if not keys:
            self.on_unknown_key()
            raise InvalidTokenError("the JWKS has no key with the token's kid and alg")
        reason = ""
        for key in keys[:MOST_KEYS_TRIED]:
            try:
                return jwt.decode(token, key, algorithms=ALGORITHMS).claims
            except (JoseError, ValueError, KeyError, TypeError) as error:
                reason = type(error).__name__
        raise InvalidTokenError(f"the token is not valid: {reason}")


def _do_nothing() -> None:
    return


def _json(part: str) -> dict[str, Any]:
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidTokenError("a part of the token is not a JSON object") from None
    if not isinstance(value, dict):
        raise InvalidTokenError("a part of the token is not a JSON object")
    return value


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise InvalidTokenError(f"the claim {name} is not a time")
    return float(value)


def _texts(value: object, *, divided: bool = True) -> frozenset[str]:
    """Return the texts of a claim that is a list of texts, or one text, divided at spaces where that is its form."""
    if isinstance(value, str):
        return frozenset(value.split() if divided else (value,))
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()
