"""A token endpoint of OAuth: tokens for client credentials, asked for as Kafka's ``HttpAccessTokenRetriever`` does."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import quote_plus, urlencode

from .bounded_http import fetch
from .errors import HttpError, SaslAuthenticationError, SecuritySettingError
from .jaas import JaasEntry
from .login_rules import HttpLimits, RetryRules
from .password import HIDDEN, Password
from .tls import TLS_KEYS, TlsSettings

logger = logging.getLogger(__name__)

LONGEST_REASON = 200
"""The number of characters of an endpoint's reason that an error repeats."""


@dataclass(frozen=True)
class TokenEndpoint:
    """A token endpoint that gives tokens for client credentials (RFC 6749, section 4.4); a call asks for a token."""

    url: str
    client_id: str
    secret: Password
    scope: str | None = None
    limits: HttpLimits = field(default_factory=HttpLimits)
    retries: RetryRules = field(default_factory=RetryRules)
    context: Callable[[], ssl.SSLContext] | None = None
    encodes_header: bool = False
    """Whether client id and secret are URL-encoded (``sasl.oauthbearer.header.urlencode``)."""

    def __call__(self) -> str:
        """Ask for a token; blocks.

        Raises SaslAuthenticationError with the endpoint's reason, once an attempt cannot help or after
        ``sasl.login.retry.backoff.max.ms``.
        """
        ends_at = time.monotonic() + self.retries.most_s
        backoff_s = self.retries.backoff_s
        while True:
            try:
                return self._ask()
            except HttpError as error:
                rest_s = ends_at - time.monotonic()
                if error.is_final or rest_s <= 0:
                    raise SaslAuthenticationError(f"no token from {self.url}: {self._reason(error)}") from None
                wait_s = min(backoff_s, rest_s)
                logger.warning(
                    "no token from %s: %s; trying again in %.0f ms", self.url, self._reason(error), wait_s * 1000
                )
                time.sleep(wait_s)
                backoff_s *= 2

    def _ask(self) -> str:
        """Make one attempt. Raises HttpError."""
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        encode = quote_plus if self.encodes_header else str
        login = f"{encode(self.client_id)}:{encode(self.secret.value)}".encode()
        headers = {
            "Authorization": f"Basic {base64.b64encode(login).decode()}",
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        data = fetch(self.url, self.limits, form=urlencode(form).encode(), headers=headers, context=self.context)
        answer = _json(data)
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.strip():
            raise HttpError("the answer has no access_token", is_final=True)
        return token.strip()

    def _reason(self, error: HttpError) -> str:
        """Return the reason of an error, with that of the endpoint (RFC 6749, section 5.2) if there is one."""
        answer = _json(error.body)
        if not isinstance(answer, dict):
            return str(error)
        words = [answer[name] for name in ("error", "error_description") if isinstance(answer.get(name), str)]
        text = ascii(": ".join(words).replace(self.secret.value or "\0", HIDDEN)[:LONGEST_REASON])[1:-1]
        return f"{error}, {text}" if text else str(error)


def endpoint_context(url: str, login: JaasEntry | None) -> Callable[[], ssl.SSLContext] | None:
    """Return what makes the TLS context for an https URL: the options ``ssl.*`` of the login module, as in Kafka.

    Raises SecuritySettingError for options that are wrong.
    """
    if not url.startswith("https://") or login is None:
        return None
    options = {name: value.value for name, value in login.options.items() if name.startswith("ssl.")}
    for name in options:
        if name not in TLS_KEYS:
            raise SecuritySettingError(f"sasl.jaas.config: unknown option {name!r} of the login module")
    if not options:
        return None
    try:
        settings = TlsSettings.from_properties(options)
        settings.client_context()
    except SecuritySettingError as error:
        raise SecuritySettingError(f"sasl.jaas.config: {error}") from None
    return settings.client_context


def _json(data: bytes) -> object:
    """Return a JSON value, None for other bytes."""
    try:
        value: object = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value
