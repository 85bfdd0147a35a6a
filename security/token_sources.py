"""The tokens of an OAUTHBEARER client and their replacement; tokens of a file, and unsecured ones."""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from .errors import SaslAuthenticationError, SecuritySettingError
from .jaas import JaasEntry
from .login_rules import DEFAULT_REFRESH, RefreshRules
from .password import Password

logger = logging.getLogger(__name__)

LARGEST_TOKEN_BYTES = 1 << 20
DEFAULT_LIFETIME_S = 3600

_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")

TokenFunction = Callable[[], str]
"""Returns a token in compact form; may block."""


class TokenSource:
    """A source that keeps a token until most of its life has passed; threads may share it.

    If no new token can be had, the old one is used as long as it is valid.
    """

    def __init__(self, fetch: TokenFunction, rules: RefreshRules = DEFAULT_REFRESH) -> None:
        self._fetch = fetch
        self._rules = rules
        self._random = Random()
        self._lock = threading.Lock()
        self._token = ""
        self._refresh_at = 0.0
        self._expires_at = 0.0
        self._failure: SaslAuthenticationError | None = None
        self._failed_at = -math.inf

    def token(self) -> Password:
        """Return a token, which may block. Raises SaslAuthenticationError without secrets in its text."""
        asked_at = time.monotonic()
        with self._lock:
            now = time.time()
            if now < self._refresh_at:
                return Password(self._token)
            if self._failure is not None and self._failed_at >= asked_at:
                # The attempt of another thread has just failed; a further attempt would take as long.
                raise SaslAuthenticationError(str(self._failure))
            try:
                self._token = self._fetch()
            except SaslAuthenticationError as error:
                if now < self._expires_at:
                    logger.warning("the present token is used on: %s", error)
                    return Password(self._token)
                self._failure, self._failed_at = error, time.monotonic()
                raise
            self._expires_at = _expiry(self._token) or 0.0
            self._refresh_at = self._rules.refresh_at(now, self._expires_at, self._random) if self._expires_at else now
            return Password(self._token)


class TokenFile:
    """A file whose content is a token, such as one that Kubernetes mounts."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def __call__(self) -> str:
        """Read the token. Raises SaslAuthenticationError."""
        try:
            with self._path.open("rb") as file:
                token = file.read(LARGEST_TOKEN_BYTES).decode("ascii").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise SaslAuthenticationError(f"no token in {self._path}: {reason}") from None
        if not token:
            raise SaslAuthenticationError(f"no token in {self._path}: the file is empty")
        return token


class UnsecuredToken:
    """A token without a signature, from the options ``unsecuredLogin...`` of the login module; for development."""

    def __init__(self, options: JaasEntry) -> None:
        """Take the claims. Raises SecuritySettingError."""
        self._claims: dict[str, Any] = {}
        for prefix, convert in (
            ("unsecuredLoginStringClaim_", str),
            ("unsecuredLoginNumberClaim_", _number),
            ("unsecuredLoginListClaim_", _listed),
        ):
            for name, value in options.options.items():
                if name.startswith(prefix):
                    self._claims[name.removeprefix(prefix)] = convert(value.value)
        principal_claim = options.option("unsecuredLoginPrincipalClaimName") or "sub"
        if not self._claims.get(principal_claim):
            raise SecuritySettingError(
                "sasl.jaas.config: OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url, or the option "
                f"unsecuredLoginStringClaim_{principal_claim} for an unsecured token"
            )
        self._lifetime_s = _number(options.option("unsecuredLoginLifetimeSeconds") or str(DEFAULT_LIFETIME_S))

    def __call__(self) -> str:
        """Return a token that begins now."""
        # Rounded down: a server with the same clock refuses a token from the future.
        now = math.floor(time.time() * 1000) / 1000
        claims = {"iat": now, "exp": now + self._lifetime_s, **self._claims}
        return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def token_extensions(options: JaasEntry, prefix: str) -> Mapping[str, str]:
    """Return the SASL extensions (KIP-342) of the options that begin with ``prefix``. Raises SecuritySettingError."""
    found = {
        name.removeprefix(prefix): value.value for name, value in options.options.items() if name.startswith(prefix)
    }
    for name, text in found.items():
        if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(text):
            raise SecuritySettingError(
                f"sasl.jaas.config: the option {prefix}{name} is no SASL extension: the name has letters only and is "
                "not auth, the value is printable ASCII"
            )
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SecuritySettingError("sasl.jaas.config: an option for a number of an unsecured token has none") from None


def _listed(text: str) -> list[str]:
    """Return the elements of a list, whose first character separates them."""
    return text[1:].split(text[0]) if text else []


def _encoded(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _expiry(token: str) -> float | None:
    """Return when a token expires, in seconds since 1970, or None if it cannot be read."""
    try:
        part = token.split(".")[1]
        at = float(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"])
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return at if math.isfinite(at) else None
