"""The formatting of log directories before the first start, as Kafka's ``StorageTool`` and ``Formatter`` do it.

No broker needs it: a broker formats directories that are empty. It sets the cluster id, SCRAM users who may log in from
the first start on, and levels of features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...protocol.messages.cluster_metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from ...protocol.schema import Message
from ...storage.clock import SystemClock
from ...storage.disk.paths import META_PROPERTIES
from ...storage.disk.properties import parse_properties
from ...storage.log_manager import LogManager
from ..config import BrokerConfig
from ..metadata.features import FeatureUpdate, UpgradeType, validate_update
from ..metadata.store import MetadataStore


class AlreadyFormattedError(Exception):
    """An error for a log directory that is formatted; its text is Kafka's."""


def format_directories(
    config: BrokerConfig,
    cluster_id: str,
    *,
    users: Sequence[UserScramCredentialRecord] = (),
    features: Mapping[str, int] | None = None,
    ignores_formatted: bool = False,
) -> list[str]:
    """Format the log directories that are not formatted, and return them.

    ``users`` and ``features`` are written to the metadata of a node that is its cluster's controller; other nodes take
    the controller's. Raises AlreadyFormattedError, StorageUnavailableError, BrokerError.
    """
    unformatted = [path for path in config.log_dirs if not is_formatted(path)]
    if len(unformatted) < len(config.log_dirs) and not ignores_formatted:
        formatted = next(path for path in config.log_dirs if path not in unformatted)
        raise AlreadyFormattedError(
            f"Log directory {formatted} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    if not unformatted:
        return []
    records: list[Message] = [*users]
    for name, level in (features or {}).items():
        validate_update(FeatureUpdate(name, level, UpgradeType.UPGRADE), {}, config.node_id)
        records.append(FeatureLevelRecord(name=name, feature_level=level))
    clock = SystemClock()
    logs = LogManager(config.log_dirs, config.log_config(), clock, node_id=config.node_id, first_cluster_id=cluster_id)
    logs.open_all()
    try:
        if records and config.roles.controller is None:
            metadata = MetadataStore(config, clock)
            metadata.open(logs)
            metadata.commit(records)
    finally:
        logs.close()
    return unformatted


def is_formatted(directory: str) -> bool:
    """Return whether a log directory belongs to a cluster."""
    return (Path(directory) / META_PROPERTIES).exists()


def meta_properties(directory: str) -> Mapping[str, str]:
    """Return the properties of a formatted directory. Raises OSError."""
    return parse_properties((Path(directory) / META_PROPERTIES).read_text(encoding="utf-8"))
