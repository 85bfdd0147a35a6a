"""The broker's configuration: values as typed attributes, with their sources and their changes at run time."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ...storage.disk.properties import parse_numbered_properties
from ...storage.log.log_config import LogConfig
from .authorization import super_users_in
from .dynamic_only import DYNAMIC_ONLY_KEYS
from .fault_keys import ENABLE, FAULT_PREFIX, RULE_PREFIX, InvalidFaultError, check_faults, fault_rule_key
from .gateway_keys import UPSTREAM_PREFIX
from .ignored_keys import ignored_keys
from .initial_topics import parse_initial_topics
from .keys import ConfigError, ConfigValue, Key, Update
from .listener_rules import check_listeners
from .listener_security import LISTENER_PREFIX, RECONFIGURED_PER_LISTENER, unprefixed
from .listeners import check_counts, parse_endpoints, parse_protocol_map
from .roles import roles_of
from .table import SUPPORTED_KEYS, SupportedKeys
from .topic_keys import TOPIC_KEYS, milliseconds

UNLIMITED = 2**31 - 1
LIMITS_OF_LISTENERS = ("max.connections", "max.connection.creation.rate")
"""Limits that each listener may have in addition to the broker's limits (KIP-402, KIP-612)."""
NEVER_ZERO_AT_RUN_TIME = ("max.connections", "max.connection.creation.rate")
"""Keys that must not become 0 at run time: no client could connect to change them back (Kafka `ConnectionQuotas`)."""


class BrokerConfig(SupportedKeys):
    """A broker's configuration with Kafka's keys as attributes: ``message.max.bytes`` is ``config.message_max_bytes``.

    A class attribute is the default; an instance attribute is a value that was set. Three layers of text override the
    defaults, each later layer the earlier ones: ``properties`` (the file and the command line), ``cluster_overrides``
    and ``broker_overrides`` (changed at run time, KIP-226).
    """

    def __init__(self, properties: Mapping[str, str] | None = None, /, **values: ConfigValue) -> None:
        """Configure from text by Kafka's names, or from values by attribute (``BrokerConfig(num_partitions=3)``).

        Raises :class:`ConfigError`, one line that says what to change.
        """
        self.properties: dict[str, str] = dict(properties or {})
        for attribute, value in values.items():
            key = SUPPORTED_KEYS[attribute.replace("_", ".")]
            self.properties[key.name] = key.render(value) or ""
        self.places: dict[str, str] = {}
        """The place in which each key was set, by name: a file's line, or the command line; empty for keys set by a
        program."""
        self._log_defaults: LogConfig | None = None
        self._listener_limits: dict[tuple[str, str], int] = {}
        """The results of `listener_limit`, which each new connection needs."""
        self.cluster_overrides: dict[str, str] = {}
        self.broker_overrides: dict[str, str] = {}
        for name in self.properties:
            if name in SUPPORTED_KEYS:
                self._apply(SUPPORTED_KEYS[name])
        if self.gregor_fault_file:
            self.properties = {**_rules_of_file(self.gregor_fault_file), **self.properties}
        check_faults(self.properties)
        self._resolve()

    @classmethod
    def load(
        cls, path: Path | None = None, overrides: Iterable[str] = (), added: Mapping[str, Iterable[str]] | None = None
    ) -> "BrokerConfig":
        """Read ``server.properties`` and ``key=value`` overrides, in the format of ``kafka-server-start``.

        ``added`` holds further items of keys that are lists. Raises :class:`ConfigError`.
        """
        properties: dict[str, str] = {}
        places: dict[str, str] = {}
        if path is not None:
            try:
                found = parse_numbered_properties(path.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise ConfigError(f"Cannot read {path}: {reason}; name a file in Java's properties format") from None
            properties = {name: text.value for name, text in found.items()}
            places = {name: f"{path} line {text.line}" for name, text in found.items()}
        for override in overrides:
            name, equals, value = override.partition("=")
            if not equals or not name.strip():
                raise ConfigError(f"Invalid --override {override}: write it as key=value")
            properties[name.strip()] = value.strip()
            places[name.strip()] = "--override"
        for name, items in (added or {}).items():
            properties[name] = ",".join([*filter(None, [properties.get(name)]), *items])
        config = cls(properties)
        config.places = places
        return config

    def notices(self) -> tuple[list[str], list[str]]:
        """Return messages for the operator about the configured keys: lines for info, lines for warning."""
        rules = [name for name in self.properties if name.startswith(RULE_PREFIX)]
        others = [
            name
            for name in self.properties
            if unprefixed(name) not in SUPPORTED_KEYS and name not in rules and not name.startswith(UPSTREAM_PREFIX)
        ]
        needless = sorted(name for name in others if name in ignored_keys() or _is_of_plugin(name))
        info = [f"accepted without effect: {', '.join(needless)}"] if needless else []
        known = [*SUPPORTED_KEYS, *ignored_keys(), *TOPIC_KEYS]
        warnings = []
        for name in sorted(set(others) - set(needless)):
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            place = f"{self.places[name]}: " if name in self.places else ""
            warnings.append(f"{place}unknown configuration {name} is ignored{hint}")
        if self.gregor_zookeeper_listeners and self.authorizer_class_name:
            warnings.append(
                "gregor.zookeeper.listeners and authorizer.class.name are set: clients of ZooKeeper's protocol do not "
                "log in, so everybody who reaches these listeners sees the names of all topics and brokers; the "
                "authorizer decides about their other requests as about those of User:ANONYMOUS"
            )
        if rules and not self.gregor_fault_injection_enable:
            warnings.append(f"{', '.join(rules)}: without effect, as {ENABLE} is false")
        return info, warnings

    def key(self, name: str) -> Key | None:
        """Return the broker key called ``name``, supported or ignored; None for an unknown name."""
        return _key_called(name)

    @property
    def fault_rules(self) -> dict[str, str]:
        """The text of each fault rule by its name, from all layers."""
        layers = (self.properties, self.cluster_overrides, self.broker_overrides)
        return {
            name.removeprefix(RULE_PREFIX): text
            for layer in layers
            for name, text in layer.items()
            if name.startswith(RULE_PREFIX)
        }

    def text(self, name: str) -> str | None:
        """Return the effective value of a broker key as text; ``None`` if it has none."""
        for layer in (self.broker_overrides, self.cluster_overrides, self.properties):
            if name in layer:
                return layer[name]
        return self.default_text(name)

    def default_text(self, name: str) -> str | None:
        """Return the default of a broker key as text; ``None`` if it has none."""
        key = self.key(name)
        return key.render(key.default) if key else None

    def is_set(self, name: str) -> bool:
        """Return whether a layer above the defaults sets ``name``."""
        return any(name in layer for layer in (self.broker_overrides, self.cluster_overrides, self.properties))

    def override(self, cluster: Mapping[str, str], broker: Mapping[str, str]) -> None:
        """Replace the dynamic values of the whole cluster and of this broker.

        Values that :func:`validate_broker_change` refuses (Kafka's metadata may have such values) are left out. Keys
        without a dynamic value return to the static one.
        """
        touched = {*self.cluster_overrides, *self.broker_overrides, *cluster, *broker}
        self.cluster_overrides = {name: text for name, text in cluster.items() if _may_change(name, text)}
        self.broker_overrides = {name: text for name, text in broker.items() if _may_change(name, text)}
        for name in touched:
            if name in SUPPORTED_KEYS:
                self._apply(SUPPORTED_KEYS[name])
        self._resolve()

    @property
    def security_protocols(self) -> dict[str, str]:
        """The security protocol by listener name."""
        return parse_protocol_map(self.listener_security_protocol_map)

    def listener_limit(self, name: str, listener: str) -> int:
        """Return a limit of one listener's connections, as of ``listener.name.LISTENER.max.connections``.

        ``name`` is the key without the prefix. A listener without a limit of its own has the largest INT.
        """
        limit = self._listener_limits.get((name, listener))
        if limit is None:
            prefixed = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
            text = self.text(prefixed) if self.is_set(prefixed) else None
            value = SUPPORTED_KEYS[name].parse(text) if text is not None else None
            limit = self._listener_limits[name, listener] = value if isinstance(value, int) else UNLIMITED
        return limit

    def topic_defaults(self) -> dict[str, str]:
        """Return the configuration of a topic without properties of its own, as text by topic key."""
        return {name: self.topic_default(name) for name in TOPIC_KEYS}

    def topic_default(self, name: str) -> str:
        """Return the broker's value for the topic key ``name``, as text in the topic key's unit."""
        row = TOPIC_KEYS[name]
        for fallback in row.fallbacks:
            if self.is_set(fallback):
                value = milliseconds(fallback, getattr(self, SUPPORTED_KEYS[fallback].attribute))
                return row.key.render(value) or ""
        return row.key.render(row.key.default) or ""

    def log_config(self, topic_properties: Mapping[str, str] | None = None) -> LogConfig:
        """Return the log settings of a topic with these properties over the broker's defaults."""
        if self._log_defaults is None:
            self._log_defaults = LogConfig.from_properties(self.topic_defaults())
        return LogConfig.from_properties(topic_properties or {}, defaults=self._log_defaults)

    def _apply(self, key: Key) -> None:
        text = self.text(key.name)
        if not self.is_set(key.name) or (text == "" and key.default is None):
            self.__dict__.pop(key.attribute, None)
        else:
            setattr(self, key.attribute, key.parse(text or ""))

    def _resolve(self) -> None:
        """Set the values that follow from several keys, and check that these keys agree."""
        self._log_defaults = None
        self._listener_limits.clear()
        if "broker.id" in self.properties and "node.id" not in self.properties:
            self.node_id = self.broker_id
        elif "broker.id" in self.properties and self.broker_id != self.node_id:
            raise ConfigError(f"node.id={self.node_id} and broker.id={self.broker_id} differ: remove broker.id")
        self.log_dirs = self.log_dirs or (self.log_dir,)
        self.roles = roles_of(self)
        check_listeners(self, is_broker=self.roles.is_broker)
        for endpoint in parse_endpoints("listeners", self.listeners):
            for name in LIMITS_OF_LISTENERS:
                self.listener_limit(name, endpoint.name)
        self.super_user_names = super_users_in(self.super_users)
        self.initial_topics = parse_initial_topics(self.gregor_create_topics)
        if self.gregor_load and not self.roles.is_alone:
            raise ConfigError("gregor.load needs a broker that is a cluster of its own: produce the records instead")


def validate_broker_change(name: str, text: str, *, per_broker: bool) -> None:
    """Raise :class:`ConfigError` if the broker key ``name`` cannot be set to ``text`` at run time (KIP-226).

    An unknown key may belong to a plug-in: Kafka stores it, and so does Gregor.
    """
    key = _key_called(name)
    if key is None and name.startswith(FAULT_PREFIX):
        raise InvalidFaultError(f"Unknown configuration {name}: fault rules are called {RULE_PREFIX}NAME")
    if key is None:
        return
    if key.update is Update.READ_ONLY:
        raise ConfigError(f"Cannot update these configs dynamically: Set({name})")
    if name in RECONFIGURED_PER_LISTENER:
        reason = "These security configs can be dynamically updated only per-listener using the listener prefix"
        raise ConfigError(f"{reason}: Set({name})")
    if key.update is Update.PER_BROKER and not per_broker:
        reason = "Cannot update these configs at default cluster level, broker id must be specified"
        raise ConfigError(f"{reason}: Set({name})")
    value = key.parse(text)
    if name in NEVER_ZERO_AT_RUN_TIME and value == 0:
        # Kafka's own message. No client could connect to undo the change, not even after a restart.
        raise ConfigError(refused_reconfiguration(f"Invalid {name} 0"))
    if name == "max.connections.per.ip.overrides":
        check_counts(text)


def refused_reconfiguration(reason: str) -> str:
    """Return Kafka's message for a change that a part of the broker could not take (``DynamicBrokerConfig``)."""
    exception = "org.apache.kafka.common.config.ConfigException"
    return f"Invalid value {exception}: {reason} for configuration Invalid dynamic configuration"


def check_connections_per_ip(most: str, overrides: str) -> None:
    """Raise :class:`ConfigError` if no address could connect (Kafka `KafkaConfig.validateValues`)."""
    if most.strip() == "0" and not overrides:
        raise ConfigError(
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set."
        )


def check_faults_allowed(config: BrokerConfig, name: str) -> None:
    """Raise :class:`InvalidFaultError` for a fault key on a broker without fault injection."""
    if name.startswith(FAULT_PREFIX) and not config.gregor_fault_injection_enable:
        raise InvalidFaultError(f"{name}: this broker injects no faults; start it with {ENABLE}=true")


def _key_called(name: str) -> Key | None:
    known = SUPPORTED_KEYS.get(name) or DYNAMIC_ONLY_KEYS.get(name) or ignored_keys().get(name) or fault_rule_key(name)
    if known is None and (key := unprefixed(name)) != name:
        known = SUPPORTED_KEYS.get(key) or ignored_keys().get(key)
        return replace(known, name=name, default=None) if known else None
    return known


def _rules_of_file(path: str) -> dict[str, str]:
    from ..faults.rule_file import read_rule_file
    from ..faults.rule_syntax import FaultRuleError

    try:
        return {RULE_PREFIX + name: text for name, text in read_rule_file(path).items()}
    except FaultRuleError as error:
        raise ConfigError(f"gregor.fault.file: {error}") from None


def _may_change(name: str, text: str) -> bool:
    try:
        validate_broker_change(name, text, per_broker=True)
    except ConfigError:
        return False
    return True


def _is_of_plugin(name: str) -> bool:
    """Return whether ``name`` configures a plug-in or its listener, which Kafka never reports as unknown."""
    return name.startswith((LISTENER_PREFIX, "rlmm.config.", "rsm.config.", "metrics.context."))


for _key in SUPPORTED_KEYS.values():
    setattr(BrokerConfig, _key.attribute, _key.default)
