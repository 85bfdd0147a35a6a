"""The keys that check signed OAUTHBEARER tokens: read at start and then again and again, in threads."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from ...security.errors import HttpError
from ...security.jaas import JaasEntry
from ...security.login_rules import HttpLimits
from ...security.token_checks import ClaimRules, SignedTokens
from .key_reader import KeyReader

logger = logging.getLogger(__name__)

LEAST_REFRESH_S = 1.0
"""The least time between two readings that unknown keys cause: tokens are the clients' choice."""


class KeySetReading:
    """A key set, with the times at which it is read."""

    def __init__(
        self, tokens: SignedTokens, url: str, *, refresh_s: float, retry_s: float, most_retry_s: float
    ) -> None:
        self._tokens = tokens
        self._url = url
        self._refresh_s = refresh_s
        self._retry_s = retry_s
        self._most_retry_s = most_retry_s
        self._wanted = trio.Event()
        tokens.on_unknown_key = lambda: self._wanted.set()

    async def run(self) -> None:
        """Read the key set until cancelled: at once, at each refresh, and soon after a token named an unknown key."""
        retry_s = self._retry_s
        while True:
            try:
                await trio.to_thread.run_sync(self._tokens.load, abandon_on_cancel=True)
            except (OSError, ValueError, HttpError) as error:
                logger.warning("cannot read the JWKS at %s: %s", self._url, error)
                await trio.sleep(retry_s)
                retry_s = min(2 * retry_s, self._most_retry_s)
                continue
            retry_s = self._retry_s
            await trio.sleep(LEAST_REFRESH_S)
            self._wanted = trio.Event()
            with trio.move_on_after(self._refresh_s):
                await self._wanted.wait()


def signed_tokens(text: Callable[[str], str | None], login: JaasEntry | None, reader: KeyReader) -> SignedTokens:
    """Return the check of one listener's tokens; ``text`` returns the listener's keys, ``login`` is its login module.

    The module's options ``ssl.*`` are for an https URL, as in Kafka. Raises SecuritySettingError.
    """
    from ...security.token_endpoint import endpoint_context

    url = text("sasl.oauthbearer.jwks.endpoint.url") or ""
    audience = text("sasl.oauthbearer.expected.audience") or ""
    rules = ClaimRules(
        audience=frozenset(filter(None, (word.strip() for word in audience.split(",")))),
        issuer=text("sasl.oauthbearer.expected.issuer"),
        subject_claim=text("sasl.oauthbearer.sub.claim.name") or "sub",
        scope_claim=text("sasl.oauthbearer.scope.claim.name") or "scope",
        clock_skew_s=float(text("sasl.oauthbearer.clock.skew.seconds") or 30),
    )
    seconds = partial(_seconds, text)
    timeouts = {name: text(name) or "" for name in ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")}
    limits = HttpLimits.from_properties(timeouts)
    tokens = SignedTokens(url, rules, limits=limits, context=endpoint_context(url, login))
    reader.add(
        KeySetReading(
            tokens,
            url,
            refresh_s=seconds("refresh.ms"),
            retry_s=seconds("retry.backoff.ms"),
            most_retry_s=seconds("retry.backoff.max.ms"),
        )
    )
    return tokens


def _seconds(text: Callable[[str], str | None], name: str) -> float:
    return int(text(f"sasl.oauthbearer.jwks.endpoint.{name}") or 0) / 1000
