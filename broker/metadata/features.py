"""Features of the cluster: the supported levels, and the rules for finalizing levels (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ...protocol.errors import BrokerError, ErrorCode

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"

TRANSACTION_VERSION = "transaction.version"

SUPPORTED_LEVELS = {METADATA_VERSION: (1, 21), KRAFT_VERSION: (0, 1)}
"""Lowest and highest level by feature, those of Kafka 3.9 (3.9-IV0 is 21); consoles derive what a cluster can do."""

OLDEST_KRAFT_LEVEL = 4
"""3.3-IV0: the lowest level of `metadata.version` for a cluster without ZooKeeper."""
LEVELS_WITH_NEW_RECORDS = frozenset({5, 6, 7, 8, 11, 13, 14, 15, 17})
"""Levels of `metadata.version` that change what the metadata log may hold (Kafka `MetadataVersion`)."""

BEYOND_KAFKA_3_9 = {TRANSACTION_VERSION: (0, 2)}
"""Levels that only Kafka 4 has. ApiVersions lists them once one is finalized; until then it lists Kafka 3.9's."""

TRANSACTIONS_V2_LEVEL = 2
"""Lowest level of `transaction.version` at which EndTxn gives each transaction its own epoch (KIP-890)."""

NEVER_NAMED = {"group.version": 0}
"""Features that Kafka 3.9 supports at level 0 only: setting that level is no change."""


def has_transactions_v2(finalized: Mapping[str, int]) -> bool:
    """Return whether transactions V2 are enabled."""
    return finalized.get(TRANSACTION_VERSION, 0) >= TRANSACTIONS_V2_LEVEL


def supported_levels(finalized: Mapping[str, int]) -> Mapping[str, tuple[int, int]]:
    """Return the feature levels for ApiVersions, given the finalized levels."""
    wanted = {name: levels for name, levels in BEYOND_KAFKA_3_9.items() if finalized.get(name, 0) > 0}
    return SUPPORTED_LEVELS | wanted


class UpgradeType(IntEnum):
    """A permitted direction of a level's change."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A request for a new level of one feature."""

    feature: str
    level: int
    kind: UpgradeType


def validate_update(update: FeatureUpdate, finalized: Mapping[str, int], node_id: int) -> None:
    """Raise BrokerError INVALID_UPDATE_VERSION, with Kafka's message, for a level that cannot be finalized."""
    if NEVER_NAMED.get(update.feature) == update.level:
        return
    levels = (SUPPORTED_LEVELS | BEYOND_KAFKA_3_9).get(update.feature)
    refusal = f"Invalid update version {update.level} for feature {update.feature}."
    if update.kind is UpgradeType.UNKNOWN:
        raise _invalid(f"{refusal} The controller does not support the given upgrade type.")
    if levels is None:
        raise _invalid(f"{refusal} Local controller {node_id} does not support this feature.")
    if not levels[0] <= update.level <= levels[1]:
        raise _invalid(f"{refusal} Local controller {node_id} only supports versions {levels[0]}-{levels[1]}")
    current = finalized.get(update.feature, 0)
    if update.level < current and update.kind is UpgradeType.UPGRADE:
        raise _invalid(
            f"{refusal} Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade."
        )
    if update.feature == METADATA_VERSION and update.level < current:
        _validate_metadata_downgrade(update, current)


def _validate_metadata_downgrade(update: FeatureUpdate, current: int) -> None:
    refusal = f"Invalid metadata.version {update.level}."
    if update.level < OLDEST_KRAFT_LEVEL:
        raise _invalid(f"{refusal} Unable to set a metadata.version less than 3.3-IV0")
    if any(update.level < level <= current for level in LEVELS_WITH_NEW_RECORDS):
        if update.kind is UpgradeType.UNSAFE_DOWNGRADE:
            raise _invalid(f"{refusal} Unsafe metadata downgrade is not supported in this version.")
        raise _invalid(
            f"{refusal} Refusing to perform the requested downgrade because it might delete metadata information."
        )


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_UPDATE_VERSION, reason)
