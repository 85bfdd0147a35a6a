"""Properties that several clients share in one file, as the configurations of Kafka's tools and of Spark jobs do."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields

from ..security.client_security import CLIENT_KEYS, is_security_key
from .config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig
from .errors import ConfigError

KEYS_WITHOUT_EFFECT = frozenset(
    {
        "auto.include.jmx.reporter",
        "bootstrap.controllers",
        "bootstrap.servers",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "enable.metrics.push",
        "exclude.internal.topics",
        "interceptor.classes",
        "internal.leave.group.on.close",
        "internal.throw.on.fetch.stable.offset.unsupported",
        "key.deserializer",
        "key.serializer",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "socket.connection.setup.timeout.max.ms",
        "value.deserializer",
        "value.serializer",
    }
)
"""Keys of Kafka's clients that ours do not need."""
_CLIENTS = (ProducerConfig, ConsumerConfig, AdminConfig)


def properties_for(client: type[ClientConfig], properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that concern one kind of client; those of other kinds are left out, as Kafka ignores them.

    Raises ConfigError for a key that no client has, and names the nearest: a misspelt `security.protocol` would send
    records in clear.
    """
    ours = _keys(client)
    all_keys = frozenset[str]().union(*map(_keys, _CLIENTS))
    found = {}
    for name, text in properties.items():
        dotted = name.replace("_", ".")
        if is_security_key(dotted) or dotted in ours:
            found[name] = text
        elif dotted not in all_keys and dotted not in KEYS_WITHOUT_EFFECT:
            nearest = difflib.get_close_matches(dotted, all_keys | KEYS_WITHOUT_EFFECT | CLIENT_KEYS, n=1)
            raise ConfigError(f"unknown key {name!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
    return found


def _keys(client: type[ClientConfig]) -> frozenset[str]:
    names = {item.name for item in fields(client)} | set(client._ALIASES)
    return frozenset(name.replace("_", ".") for name in names - {"explicit", "security"})
