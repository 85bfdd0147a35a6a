"""The times of an OAUTHBEARER client's login: ``sasl.login.*`` with Kafka's names, defaults and limits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from .errors import SecuritySettingError

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The time limits of a request in seconds. Kafka has no defaults, and waits for ever."""

    connect_s: float = 10.0
    """For the TCP connection and the TLS handshake (``sasl.login.connect.timeout.ms``)."""
    read_s: float = 10.0
    """For the whole answer (``sasl.login.read.timeout.ms``)."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> HttpLimits:
        """Read the keys. Raises SecuritySettingError."""
        return cls(
            connect_s=_number(properties, "sasl.login.connect.timeout.ms", 10_000, least=1) / 1000,
            read_s=_number(properties, "sasl.login.read.timeout.ms", 10_000, least=1) / 1000,
        )


@dataclass(frozen=True, slots=True)
class RetryRules:
    """The waits between attempts to get a token, in seconds."""

    backoff_s: float = 0.1
    """Before the second attempt, doubled before each further one (``sasl.login.retry.backoff.ms``)."""
    most_s: float = 10.0
    """The time for all attempts, as in Kafka's ``Retry`` (``sasl.login.retry.backoff.max.ms``)."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> RetryRules:
        """Read the keys. Raises SecuritySettingError."""
        return cls(
            backoff_s=_number(properties, "sasl.login.retry.backoff.ms", 100) / 1000,
            most_s=_number(properties, "sasl.login.retry.backoff.max.ms", 10_000) / 1000,
        )


@dataclass(frozen=True, slots=True)
class RefreshRules:
    """The time at which a token is replaced, in seconds and parts of the token's life (``sasl.login.refresh.*``)."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> RefreshRules:
        """Read the keys. Raises SecuritySettingError."""
        return cls(
            window_factor=_part(properties, "sasl.login.refresh.window.factor", 0.8, 0.5, 1.0),
            window_jitter=_part(properties, "sasl.login.refresh.window.jitter", 0.05, 0.0, 0.25),
            min_period_s=_number(properties, "sasl.login.refresh.min.period.seconds", 60, most=900),
            buffer_s=_number(properties, "sasl.login.refresh.buffer.seconds", 300, most=3600),
        )

    def refresh_at(self, now: float, expires_at: float, random: Random) -> float:
        """Return when to replace a token that is fetched now (Kafka ``ExpiringCredentialRefreshingLogin.refreshMs``).

        The least period and the buffer do not count for a life that is shorter than both together.
        """
        part = self.window_factor + self.window_jitter * random.random()
        at = now + (expires_at - now) * part
        if self.min_period_s + self.buffer_s > expires_at - now:
            return at
        return max(min(at, expires_at - self.buffer_s), now + self.min_period_s)


DEFAULT_LIMITS = HttpLimits()
DEFAULT_REFRESH = RefreshRules()


def _number(properties: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = INT32_MAX) -> int:
    text = properties.get(name) or str(default)
    if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
        raise SecuritySettingError(f"{name} must be a number from {least} to {most}, not {text!r}")
    return int(text)


def _part(properties: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = properties.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise SecuritySettingError(f"{name} must be a number from {least} to {most}, not {text!r}")
    return value
