"""The configuration of producers, consumers and admin clients: Kafka's names with underscores, Kafka 3.9's defaults.

Keys may also be written with Kafka's dots (``**{"linger.ms": 5}``), and values as strings, as in properties files.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, get_type_hints

from ..protocol.records.compression import Codec
from ..protocol.spoken_versions import PINNED_RELEASES
from ..security.client_security import PLAINTEXT, ClientSecurity, is_security_key
from ..security.errors import SecuritySettingError
from ..security.password import Password
from ..security.token_sources import TokenFunction
from .errors import ConfigError
from .producer.partitioner import Partitioner

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
LONGEST_TEXT_BYTES = 2**15 - 1
"""The largest size of a STRING in Kafka's protocol."""

_TRUE_WORDS = {"true": True, "false": False}


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """The configuration that all clients share: names, back-off, time limits and the connection to a broker."""

    client_id: str = ""
    metadata_max_age_ms: int = 300_000
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    """A key of Kafka 4 (KIP-1102)."""
    metadata_recovery_strategy: str = "none"
    """"rebootstrap" to return to the bootstrap servers after the trigger's time without metadata (KIP-899)."""
    request_timeout_ms: int = 30_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    socket_connection_setup_timeout_ms: int = 10_000
    send_buffer_bytes: int = 131_072
    receive_buffer_bytes: int = 65_536
    security: ClientSecurity = PLAINTEXT
    """Kafka's keys `security.protocol`, `ssl.*` and `sasl.*`; as a key of our own, all of them as one value."""
    ssl_context: ssl.SSLContext | None = None
    """A key of our own that replaces Kafka's ssl.* keys; used when security.protocol is SSL or SASL_SSL."""
    sasl_oauthbearer_token_function: TokenFunction | None = None
    """A key of our own: a function that returns the OAUTHBEARER token and may block; it is called in a thread."""
    max_answer_bytes: int = INT32_MAX
    """A key of our own: a connection is closed before it receives a larger answer."""
    broker_addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    """A key of our own: hosts and ports by node id that are dialled instead of the advertised ones, which a client
    inside a container may not be able to reach."""
    api_version: str | None = None
    """A key of our own: send the versions of that Kafka release ("0.8" ... "0.11") instead of negotiating versions."""
    explicit: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    """The names of the keys that the user set, for the rules that treat defaults more leniently."""

    _AT_LEAST: ClassVar[Mapping[str, int]] = {
        "max_answer_bytes": 0,
        "metadata_max_age_ms": 0,
        "metadata_recovery_rebootstrap_trigger_ms": 0,
        "request_timeout_ms": 0,
        "reconnect_backoff_ms": 0,
        "reconnect_backoff_max_ms": 0,
        "retry_backoff_ms": 0,
        "retry_backoff_max_ms": 0,
        "socket_connection_setup_timeout_ms": 0,
        "send_buffer_bytes": -1,
        "receive_buffer_bytes": -1,
    }
    """The smallest value of each key, as in Kafka's ConfigDef; a subclass adds its keys to those of its parent."""

    _LONG: ClassVar[frozenset[str]] = frozenset(
        {
            "buffer_memory",
            "connections_max_idle_ms",
            "linger_ms",
            "max_block_ms",
            "metadata_evict_ms",
            "metadata_max_age_ms",
            "metadata_recovery_rebootstrap_trigger_ms",
            "partitioner_availability_timeout_ms",
            "reconnect_backoff_max_ms",
            "reconnect_backoff_ms",
            "retry_backoff_max_ms",
            "retry_backoff_ms",
            "socket_connection_setup_timeout_ms",
        }
    )
    """The keys that are LONG in Kafka; all other numbers are INT."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self:
        """Check and convert the properties of a user.

        Raises ConfigError that names the key and the nearest existing key.
        """
        hints = get_type_hints(cls)
        known = {item.name for item in fields(cls)} - {"explicit"}
        values: dict[str, Any] = {}
        security: dict[str, str] = {}
        for given, value in properties.items():
            if is_security_key(dotted := given.replace("_", ".")) and given.replace(".", "_") not in known:
                security[dotted] = _text(given, value)
                continue
            name = cls._ALIASES.get(given.replace(".", "_"), given.replace(".", "_"))
            if name not in known:
                nearest = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(f"unknown key {given!r}" + (f"; did you mean {nearest[0]!r}?" if nearest else ""))
            values[name] = _convert(given, value, hints[name])
        if "security" not in values:
            values["security"] = _security(security, values)
        config = cls(**values, explicit=frozenset(values))
        config._check()
        return config

    _ALIASES: ClassVar[Mapping[str, str]] = {}

    def _check(self) -> None:
        for name, least in self._AT_LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
        for item in fields(self):
            self._check_size(item.name, getattr(self, item.name))
        if self.api_version is not None and self.api_version not in PINNED_RELEASES:
            raise ConfigError(f"api_version must be one of {', '.join(PINNED_RELEASES)}, not {self.api_version!r}")
        if self.metadata_recovery_strategy.lower() not in ("none", "rebootstrap"):
            raise ConfigError(
                f"metadata_recovery_strategy must be none or rebootstrap, not {self.metadata_recovery_strategy!r}"
            )

    @property
    def rebootstraps(self) -> bool:
        """Whether `metadata.recovery.strategy` is rebootstrap."""
        return self.metadata_recovery_strategy.lower() == "rebootstrap"

    def _check_size(self, name: str, value: object) -> None:
        """Raise ConfigError for a value that no request could carry: a background task would fail on that value much
        later.
        """
        if isinstance(value, int):
            most = INT64_MAX if name in self._LONG else INT32_MAX
            if value > most:
                raise ConfigError(f"{name} must be at most {most}, not {value}")
        elif isinstance(value, str):
            try:
                size = len(value.encode())
            except UnicodeEncodeError as fault:
                raise ConfigError(f"{name} cannot be written as UTF-8: {fault}") from None
            if size > LONGEST_TEXT_BYTES:
                raise ConfigError(f"{name} must be at most {LONGEST_TEXT_BYTES} bytes long, not {size}")


@dataclass(frozen=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The configuration of a producer. `metadata.evict.ms` is KIP-526's name of Kafka's `metadata.max.idle.ms`."""

    acks: str = "all"
    batch_size: int = 16_384
    buffer_memory: int = 33_554_432
    compression_type: str = "none"
    delivery_timeout_ms: int = 120_000
    enable_idempotence: bool = True
    linger_ms: int = 0
    max_block_ms: int = 60_000
    max_in_flight_requests_per_connection: int = 5
    max_request_size: int = 1_048_576
    metadata_evict_ms: int = 300_000
    partitioner_adaptive_partitioning_enable: bool = True
    partitioner_availability_timeout_ms: int = 0
    partitioner_class: Partitioner | None = None
    partitioner_ignore_keys: bool = False
    receive_buffer_bytes: int = 32_768
    retries: int = INT32_MAX
    transaction_timeout_ms: int = 60_000
    transactional_id: str | None = None

    _ALIASES: ClassVar[Mapping[str, str]] = {"metadata_max_idle_ms": "metadata_evict_ms"}
    _AT_LEAST: ClassVar[Mapping[str, int]] = {
        **ClientConfig._AT_LEAST,
        "batch_size": 0,
        "buffer_memory": 0,
        "delivery_timeout_ms": 0,
        "linger_ms": 0,
        "max_block_ms": 0,
        "max_in_flight_requests_per_connection": 1,
        "max_request_size": 0,
        "metadata_evict_ms": 5_000,
        "partitioner_availability_timeout_ms": 0,
        "retries": 0,
        "transaction_timeout_ms": 1,
    }

    @property
    def required_acks(self) -> int:
        """The number of acks in a Produce request: -1 for "all"."""
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def codec(self) -> Codec:
        """The codec that compresses batches."""
        return Codec[self.compression_type.upper()]

    @property
    def is_idempotent(self) -> bool:
        """Whether records carry sequence numbers.

        The default is true unless another key excludes idempotence (Kafka's
        ProducerConfig.postProcessAndValidateIdempotenceConfigs).
        """
        return self.transactional_id is not None or (
            self.enable_idempotence
            and self.required_acks == -1
            and self.retries > 0
            and self.max_in_flight_requests_per_connection <= 5
        )

    def _check(self) -> None:
        super()._check()
        if self.partitioner_class is not None and not callable(self.partitioner_class):
            raise ConfigError(
                "partitioner_class must be a function (topic, key, value, partition_count) -> partition, not "
                f"{self.partitioner_class!r}"
            )
        if self.transactional_id == "":
            raise ConfigError("transactional_id must not be empty")
        if self.acks not in ("all", "-1", "0", "1"):
            raise ConfigError(f"acks must be one of all, -1, 0, 1, not {self.acks!r}")
        if self.compression_type.upper() not in Codec.__members__:
            raise ConfigError(
                f"compression_type must be none, gzip, snappy, lz4 or zstd, not {self.compression_type!r}"
            )
        if (
            self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms
            and "delivery_timeout_ms" in self.explicit
        ):
            raise ConfigError("delivery_timeout_ms must be at least linger_ms + request_timeout_ms")
        self._check_idempotence()

    def _check_idempotence(self) -> None:
        demanded = self.transactional_id is not None or (
            self.enable_idempotence and "enable_idempotence" in self.explicit
        )
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ConfigError("transactional_id needs enable_idempotence")
        if not demanded:
            return
        if self.required_acks != -1:
            raise ConfigError("an idempotent producer needs acks=all")
        if self.retries == 0:
            raise ConfigError("an idempotent producer needs retries")
        if self.max_in_flight_requests_per_connection > 5:
            raise ConfigError("an idempotent producer can have at most 5 max_in_flight_requests_per_connection")


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The configuration of a consumer."""

    allow_auto_create_topics: bool = True
    auto_commit_interval_ms: int = 5_000
    auto_offset_reset: str = "latest"
    check_crcs: bool = True
    client_rack: str = ""
    default_api_timeout_ms: int = 60_000
    enable_auto_commit: bool = True
    fetch_as_stored: bool = False
    """A key of our own: a Gregor broker does not up-convert old batches (Kafka never does); see
    `Consumer.poll_batches`.
    """
    fetch_batch_tags: bool = False
    """A key of our own: a Gregor broker adds the enriched tags of batches to its answer; see `FetchedBatches.tags`."""
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    fetch_min_bytes: int = 1
    group_id: str | None = None
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    """"consumer" selects the protocol of KIP-848, in which the coordinator assigns partitions."""
    group_remote_assignor: str | None = None
    heartbeat_interval_ms: int = 3_000
    isolation_level: str = "read_uncommitted"
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    partition_assignment_strategy: str = "range,cooperative-sticky"
    """Names from `assignors.ASSIGNORS`, the preferred assignor first; Kafka has class names here."""
    session_timeout_ms: int = 45_000

    _AT_LEAST: ClassVar[Mapping[str, int]] = {
        **ClientConfig._AT_LEAST,
        "auto_commit_interval_ms": 0,
        "default_api_timeout_ms": 0,
        "fetch_max_bytes": 0,
        "fetch_max_wait_ms": 0,
        "fetch_min_bytes": 0,
        "heartbeat_interval_ms": 1,
        "max_partition_fetch_bytes": 0,
        "max_poll_records": 1,
        "max_poll_interval_ms": 1,
        "session_timeout_ms": 1,
    }

    @property
    def is_read_committed(self) -> bool:
        """Whether records of open and aborted transactions are withheld."""
        return self.isolation_level == "read_committed"

    def _check(self) -> None:
        super()._check()
        if self.auto_offset_reset not in ("latest", "earliest", "none"):
            raise ConfigError(f"auto_offset_reset must be latest, earliest or none, not {self.auto_offset_reset!r}")
        if self.group_protocol.lower() not in ("classic", "consumer"):
            raise ConfigError(f"group_protocol must be classic or consumer, not {self.group_protocol!r}")
        if self.isolation_level not in ("read_committed", "read_uncommitted"):
            raise ConfigError(
                f"isolation_level must be read_committed or read_uncommitted, not {self.isolation_level!r}"
            )
        is_classic = self.group_protocol.lower() == "classic"
        if is_classic and self.heartbeat_interval_ms >= self.session_timeout_ms:
            # Kafka's Heartbeat: the group would remove the member between two heartbeats.
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than session_timeout_ms "
                f"({self.session_timeout_ms})"
            )
        if self.group_instance_id == "":
            raise ConfigError("group_instance_id must not be empty")


@dataclass(frozen=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The configuration of an admin client."""

    connections_max_idle_ms: int = 300_000
    default_api_timeout_ms: int = 60_000

    _AT_LEAST: ClassVar[Mapping[str, int]] = {**ClientConfig._AT_LEAST, "default_api_timeout_ms": 0}


def _security(properties: Mapping[str, str], values: Mapping[str, Any]) -> ClientSecurity:
    """Return the security settings. Raises ConfigError."""
    if not properties:
        return PLAINTEXT
    try:
        return ClientSecurity.from_properties(
            properties,
            context=values.get("ssl_context"),
            token_function=values.get("sasl_oauthbearer_token_function"),
        )
    except SecuritySettingError as error:
        raise ConfigError(str(error)) from None


def _text(name: str, value: object) -> str:
    if isinstance(value, Password):
        return value.value
    if isinstance(value, str | int):
        return str(value)
    raise ConfigError(f"{name} must be of type str, not {type(value).__name__}")


def _convert(name: str, value: object, wanted: object) -> object:
    """Convert texts and numbers to the type of the field; return all other values unchanged. Raises ConfigError."""
    if name == "acks" and isinstance(value, int):
        return str(value)
    try:
        if wanted is int:
            return _whole_number(value)
        if wanted is bool:
            return value if isinstance(value, bool) else _TRUE_WORDS[str(value).lower()]
    except (ValueError, TypeError, KeyError, OverflowError):
        pass
    else:
        is_text = isinstance(value, str) or (value is None and wanted == str | None)
        if is_text or wanted not in (str, str | None):
            return value
    kind = getattr(wanted, "__name__", str(wanted))
    raise ConfigError(f"{name} must be of type {kind}, not {value!r}")


def _whole_number(value: Any) -> int:
    """Return a number, or a text that holds a number, as int.

    Raises ValueError or TypeError for other values, also for 0.5 and True.
    """
    number = int(value)
    if isinstance(value, bool) or (not isinstance(value, str) and number != value):
        raise ValueError(value)
    return number
