"""The configuration of one topic: Kafka's 36 keys and one of Gregor's; most share type and range with a broker key.

Kafka's ``LogConfig`` and ``ServerTopicConfigSynonyms`` define the broker keys that are a topic's fallbacks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from .keys import ConfigError, ConfigType, ConfigValue, Key
from .table import SUPPORTED_KEYS

_UNITS_MS: Final = {"hours": 3_600_000, "minutes": 60_000}


@dataclass(frozen=True, slots=True)
class TopicKey:
    """A topic's key, and the broker keys of its default; the first of them that is set applies."""

    key: Key
    fallbacks: tuple[str, ...] = ()


def milliseconds(broker_key: str, value: ConfigValue) -> ConfigValue:
    """Return ``value`` of a broker key in the unit of the topic's key: hours and minutes become milliseconds.

    The value -1 stays.
    """
    factor = _UNITS_MS.get(broker_key.rpartition(".")[2], 1)
    return value * factor if isinstance(value, int) and factor > 1 and value > 0 else value


def _like(name: str, *fallbacks: str, **changes: Any) -> TopicKey:
    return TopicKey(replace(SUPPORTED_KEYS[fallbacks[0]], name=name, **changes), fallbacks)


def _alone(name: str, type_: ConfigType, default: ConfigValue, sentence: str) -> TopicKey:
    return TopicKey(Key(name, type_, default, sentence))


def _throttled(name: str, side: str) -> TopicKey:
    return TopicKey(
        Key(
            name,
            ConfigType.LIST,
            (),
            f"Replicas whose replication is throttled on the {side} side, as partition:broker pairs, or * for all.",
            pattern=r"|\*|\s*\d+\s*:\s*\d+\s*(,\s*\d+\s*:\s*\d+\s*)*",
            otherwise=f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
        )
    )


_WEEK_MS: Final = 604_800_000
_NO_LIMIT: Final = 9223372036854775807

TOPIC_KEYS: Final[dict[str, TopicKey]] = {
    row.key.name: row
    for row in (
        _like("cleanup.policy", "log.cleanup.policy"),
        _like("compression.gzip.level", "compression.gzip.level"),
        _like("compression.lz4.level", "compression.lz4.level"),
        _like("compression.type", "compression.type"),
        _like("compression.zstd.level", "compression.zstd.level"),
        _like("delete.retention.ms", "log.cleaner.delete.retention.ms"),
        _like("file.delete.delay.ms", "log.segment.delete.delay.ms"),
        _like("flush.messages", "log.flush.interval.messages"),
        _like("flush.ms", "log.flush.interval.ms", "log.flush.scheduler.interval.ms", default=_NO_LIMIT, least=0),
        _throttled("follower.replication.throttled.replicas", "follower's"),
        _like("gregor.retention.by", "gregor.retention.by"),
        _like("index.interval.bytes", "log.index.interval.bytes"),
        _throttled("leader.replication.throttled.replicas", "leader's"),
        _like("local.retention.bytes", "log.local.retention.bytes"),
        _like("local.retention.ms", "log.local.retention.ms"),
        _like("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
        _like("max.message.bytes", "message.max.bytes"),
        _like("message.downconversion.enable", "log.message.downconversion.enable"),
        _like("message.format.version", "log.message.format.version"),
        _like("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
        _like("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
        _like("message.timestamp.difference.max.ms", "log.message.timestamp.difference.max.ms"),
        _like("message.timestamp.type", "log.message.timestamp.type"),
        _like("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
        _like("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
        _like("min.insync.replicas", "min.insync.replicas"),
        _like("preallocate", "log.preallocate"),
        _alone(
            "remote.log.copy.disable",
            ConfigType.BOOLEAN,
            False,
            "Whether no further records of the topic are copied to tiered storage.",
        ),
        _alone(
            "remote.log.delete.on.disable",
            ConfigType.BOOLEAN,
            False,
            "Whether a topic's data in tiered storage is deleted when tiered storage is switched off for the topic.",
        ),
        _alone("remote.storage.enable", ConfigType.BOOLEAN, False, "Tiered storage, which Gregor does not offer."),
        _like("retention.bytes", "log.retention.bytes"),
        _like(
            "retention.ms",
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
            default=_WEEK_MS,
            least=-1,
            sentence="Milliseconds that records are kept, -1 for ever.",
        ),
        _like("segment.bytes", "log.segment.bytes"),
        _like("segment.index.bytes", "log.index.size.max.bytes"),
        _like(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            "log.roll.jitter.hours",
            default=0,
            sentence="Most milliseconds to take at random from a segment's age limit.",
        ),
        _like(
            "segment.ms",
            "log.roll.ms",
            "log.roll.hours",
            default=_WEEK_MS,
            sentence="Age in milliseconds at which the log begins a new segment.",
        ),
        _like("unclean.leader.election.enable", "unclean.leader.election.enable"),
    )
}


def validate_topic_properties(properties: Mapping[str, str]) -> None:
    """Raise :class:`ConfigError` with Kafka's message (``LogConfig.validate``) if a topic cannot have
    ``properties``."""
    values: dict[str, ConfigValue] = {}
    for name, text in properties.items():
        if name not in TOPIC_KEYS:
            raise ConfigError(f"Unknown topic config name: {name}")
        values[name] = TOPIC_KEYS[name].key.parse(text)
    if values.get("remote.storage.enable"):
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
    shortest, longest = values.get("min.compaction.lag.ms", 0), values.get("max.compaction.lag.ms", _NO_LIMIT)
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        )
