"""Configurations for DescribeConfigs: the value, its source, and the synonyms that would apply without it.

Source: Kafka `ConfigHelper`, including a peculiarity of its synonyms: a list that does not begin with the key itself is
cut to the part that does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from ..config import BrokerConfig
from ..config.dynamic_only import DYNAMIC_ONLY_KEYS
from ..config.fault_keys import RULE_PREFIX
from ..config.ignored_keys import ignored_keys
from ..config.keys import Key, Update
from ..config.listener_security import unprefixed
from ..config.table import SUPPORTED_KEYS
from ..config.topic_keys import TOPIC_KEYS


class ConfigSource(IntEnum):
    """A source of a value (Kafka `DescribeConfigsResponse.ConfigSource`)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


BROKER_SYNONYMS = {fallbacks[0]: fallbacks for row in TOPIC_KEYS.values() if len(fallbacks := row.fallbacks) > 1}
"""Broker keys that fall back to others, in order."""


@dataclass(frozen=True, slots=True)
class Synonym:
    """A source that sets, or could set, the value."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key of one resource, with its present value."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool = False
    sensitive: bool = False
    synonyms: tuple[Synonym, ...] = ()
    type: int = 0
    documentation: str | None = None


def describe_topic(config: BrokerConfig, own: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield all keys of a topic whose own configuration is ``own``."""
    for name, row in TOPIC_KEYS.items():
        inherited = _broker_synonyms(config, row.fallbacks[0]) if row.fallbacks else ()
        synonyms = inherited
        if name in own:
            synonyms = (Synonym(name, own[name], ConfigSource.TOPIC), *inherited)
        yield ConfigEntry(
            name,
            own.get(name, config.topic_default(name)),
            synonyms[0].source if synonyms else ConfigSource.DEFAULT,
            synonyms=synonyms,
            type=row.key.type,
            documentation=row.key.sentence,
        )


def describe_broker(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Yield all keys of this broker, including ignored ones; internal keys are left out, as in Kafka."""
    rules = (config.key(RULE_PREFIX + name) for name in config.fault_rules)
    for key in (*SUPPORTED_KEYS.values(), *ignored_keys().values(), *filter(None, rules)):
        if not key.internal or config.is_set(key.name):
            yield _broker_entry(config, key)
    yield from (_broker_entry(config, key) for key in DYNAMIC_ONLY_KEYS.values() if config.is_set(key.name))
    for name in {*config.properties, *config.cluster_overrides, *config.broker_overrides}:
        known = config.key(name)
        if known is not None and unprefixed(name) != name:
            yield _broker_entry(config, known)
        elif known is None:
            synonyms = _broker_synonyms(config, name)
            # An unknown key may be a plug-in's password.
            yield ConfigEntry(name, None, synonyms[0].source, read_only=True, sensitive=True, synonyms=synonyms)


def describe_cluster_default(config: BrokerConfig) -> Iterator[ConfigEntry]:
    """Yield the keys that have a cluster-wide dynamic value."""
    for name, value in config.cluster_overrides.items():
        key = config.key(name)
        shown = None if key is None or key.sensitive else value
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        yield ConfigEntry(
            name,
            shown,
            source,
            sensitive=key is None or key.sensitive,
            synonyms=(Synonym(name, shown, source),),
            type=key.type if key else 0,
            documentation=key.sentence if key else None,
        )


def _broker_entry(config: BrokerConfig, key: Key) -> ConfigEntry:
    synonyms = _broker_synonyms(config, key.name)
    return ConfigEntry(
        key.name,
        None if key.sensitive else config.text(key.name),
        synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        read_only=key.update is Update.READ_ONLY,
        sensitive=key.sensitive,
        synonyms=synonyms,
        type=key.type,
        documentation=key.sentence,
    )


def _broker_synonyms(config: BrokerConfig, name: str) -> tuple[Synonym, ...]:
    """Return all sources that set ``name``, in order of precedence."""
    names = BROKER_SYNONYMS.get(name, (name,))
    found: list[Synonym] = []
    layers = (
        (config.broker_overrides, ConfigSource.DYNAMIC_BROKER),
        (config.cluster_overrides, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (config.properties, ConfigSource.STATIC_BROKER),
    )
    for layer, source in layers:
        found.extend(Synonym(other, _shown(config, other, layer[other]), source) for other in names if other in layer)
    for other in names:
        key = config.key(other)
        default = key.render(key.default) if key else None
        if default is not None:
            found.append(Synonym(other, _shown(config, other, default), ConfigSource.DEFAULT))
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _shown(config: BrokerConfig, name: str, value: str | None) -> str | None:
    key = config.key(name)
    return None if key is None or key.sensitive else value
