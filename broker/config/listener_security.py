"""The security keys of one listener: a key with the prefix ``listener.name.NAME.`` overrides the key without it."""

from __future__ import annotations

from typing import Protocol

from .security_keys import SecurityKeys
from .table import SUPPORTED_KEYS, section_keys

LISTENER_PREFIX = "listener.name."
LISTENER_KEYS = frozenset(
    {
        *(key.name for key in section_keys(SecurityKeys) if key.name.startswith(("ssl.", "sasl."))),
        "connections.max.reauth.ms",
        "max.connections",
        "max.connection.creation.rate",
        "principal.builder.class",
    }
)
"""The keys that may be set for one listener (Kafka ``DynamicListenerConfig`` and ``ListenerName.configPrefix``)."""
RECONFIGURED_PER_LISTENER = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.truststore.certificates",
    }
)
"""The keys that may change at run time only with a listener's prefix (Kafka ``SslConfigs.RECONFIGURABLE_CONFIGS``)."""


class Texts(Protocol):
    """A source of the effective texts of keys (a `BrokerConfig`)."""

    def text(self, name: str) -> str | None:
        """Return the text of a key; None if it has none."""


def unprefixed(name: str) -> str:
    """Return the key that a name with a listener's prefix sets for the listener, and any other name unchanged.

    The prefix may contain a mechanism: ``listener.name.NAME.MECHANISM.sasl.jaas.config``.
    """
    if not name.startswith(LISTENER_PREFIX):
        return name
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    if rest in LISTENER_KEYS:
        return rest
    without_mechanism = rest.partition(".")[2]
    return without_mechanism if without_mechanism in LISTENER_KEYS else name


def listener_text(config: Texts, listener: str, key: str, mechanism: str | None = None) -> str | None:
    """Return the text of a key for one listener, for one of its mechanisms first if that is given."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    names = [f"{prefix}{mechanism.lower()}.{key}"] if mechanism is not None else []
    for name in (*names, prefix + key):
        text = config.text(name)
        if text is not None:
            return text
    return config.text(key)


def tls_properties(config: Texts, listener: str) -> dict[str, str]:
    """Return the ``ssl.*`` keys of one listener that have a value."""
    found = {name: listener_text(config, listener, name) for name in SUPPORTED_KEYS if name.startswith("ssl.")}
    return {name: text for name, text in found.items() if text is not None}
