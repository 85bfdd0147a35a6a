"""Subscriptions to the metrics of clients (KIP-714): the metrics that each client should push, and how often.

A subscription is a CLIENT_METRICS resource with up to three keys: ``metrics`` (name prefixes), ``interval.ms`` and
``match`` (``attribute=regular expression`` pairs, all of which a client must match).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

from ...protocol.errors import BrokerError, ErrorCode

DEFAULT_INTERVAL_MS = 300_000
SHORTEST_INTERVAL_MS, LONGEST_INTERVAL_MS = 100, 3_600_000

ATTRIBUTES = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
"""The attributes by which a subscription can match clients."""

LONGEST_PATTERN = 1000


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """A subscription of one client; its id changes whenever the metrics or the interval change."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


def validate_subscription(configs: Mapping[str, str]) -> None:
    """Raise BrokerError, with Kafka's code and message, if a subscription cannot have ``configs``."""
    for name, value in configs.items():
        if name == "interval.ms":
            _interval(value)
        elif name == "match":
            _patterns(value)
        elif name != "metrics":
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")


def subscription_for(
    subscriptions: Mapping[str, Mapping[str, str]], client: Mapping[str, str], salt: str
) -> ClientSubscription:
    """Return the combined subscription of a client with these attributes, over all subscriptions by name."""
    matching = [configs for configs in subscriptions.values() if configs and _matches(configs.get("match", ""), client)]
    metrics: dict[str, None] = {}
    for configs in matching:
        metrics.update(dict.fromkeys(_split(configs.get("metrics", ""))))
    if "*" in metrics:
        metrics = {"": None}
    intervals = [_interval(configs["interval.ms"]) for configs in matching if "interval.ms" in configs]
    interval_ms = min(intervals, default=DEFAULT_INTERVAL_MS)
    seen = f"{salt}|{sorted(metrics)}|{interval_ms}".encode()
    unsigned = crc32(seen)
    return ClientSubscription(unsigned - (1 << 32) if unsigned >> 31 else unsigned, tuple(metrics), interval_ms)


def _interval(text: str) -> int:
    interval_ms = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1
    if not SHORTEST_INTERVAL_MS <= interval_ms <= LONGEST_INTERVAL_MS:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid value {text} for interval.ms, interval must be between {SHORTEST_INTERVAL_MS} and "
            f"{LONGEST_INTERVAL_MS} (1 hour)",
        )
    return interval_ms


def _patterns(text: str) -> dict[str, re.Pattern[str]]:
    patterns: dict[str, re.Pattern[str]] = {}
    for pair in _split(text):
        attribute, equals, expression = (part.strip() for part in pair.partition("="))
        if not equals or attribute not in ATTRIBUTES or len(expression) > LONGEST_PATTERN:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pair}")
        try:
            patterns[attribute] = re.compile(expression)
        except re.error:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pair}") from None
    return patterns


def _matches(text: str, client: Mapping[str, str]) -> bool:
    return all(pattern.fullmatch(client.get(name, "")) for name, pattern in _patterns(text).items())


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
