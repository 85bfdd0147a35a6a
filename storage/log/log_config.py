"""The settings of one partition log: Kafka's topic configuration, with types (Kafka `LogConfig`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

LONG_MAX = 2**63 - 1
"""Kafka's "never" and "no limit" in 64-bit settings."""

UNLIMITED = -1
"""Kafka's "no limit" in `retention.ms` and `retention.bytes`."""

DAY_MS = 24 * 60 * 60 * 1000


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return lowered == "true"


_PARSERS: dict[str, Callable[[str], Any]] = {
    "int": lambda text: int(text.strip()),
    "float": lambda text: float(text.strip()),
    "bool": _boolean,
    "str": str.strip,
}


@dataclass(slots=True)
class LogConfig:
    """The settings of a topic under Kafka's names, with underscores for dots and with Kafka's defaults and units.

    A change at run time replaces the whole `LogConfig` of a log, see `PartitionLog.config`.
    """

    cleanup_policy: str = "delete"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = "producer"
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    gregor_retention_by: str = "timestamp"
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_downconversion_enable: bool = True
    message_timestamp_after_max_ms: int = LONG_MAX
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_difference_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    unclean_leader_election_enable: bool = False

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], *, defaults: LogConfig | None = None) -> LogConfig:
        """Build settings from Kafka's topic keys (`segment.bytes`); a setting without its key comes from `defaults`.

        Topic keys that do not concern a log (for example `follower.replication.throttled.replicas`) are ignored.
        Raises ValueError that names the key if a value is not valid.
        """
        given: dict[str, Any] = {}
        for field in fields(cls):
            key = field.name.replace("_", ".")
            text = properties.get(key)
            if text is None:
                continue
            try:
                given[field.name] = _PARSERS[str(field.type)](text)
            except ValueError as fault:
                raise ValueError(f"{key}: {fault}") from fault
        return replace(defaults or cls(), **given)

    @property
    def is_compacted(self) -> bool:
        """Return whether `cleanup.policy` contains `compact`."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted_by_retention(self) -> bool:
        """Return whether `cleanup.policy` contains `delete`."""
        return "delete" in self.cleanup_policy

    @property
    def is_retained_by_receipt(self) -> bool:
        """Return whether `retention.ms` counts from the receipt of the records, not from their timestamps."""
        return self.gregor_retention_by == "receipt"

    @property
    def is_log_append_time(self) -> bool:
        """Return whether the broker's clock sets record timestamps (KIP-32)."""
        return self.message_timestamp_type == "LogAppendTime"
