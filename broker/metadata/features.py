"""Features of the cluster: what this broker supports, and which levels may be finalized (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ...protocol.errors import BrokerError, ErrorCode

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"

SUPPORTED_LEVELS = {METADATA_VERSION: (1, 21), KRAFT_VERSION: (0, 1)}
"""Lowest and highest level by feature, those of Kafka 3.9 (3.9-IV0 is 21); consoles derive what a cluster can do."""

NEVER_NAMED = {"transaction.version": 0, "group.version": 0}
"""Features that Kafka 3.9 knows at level 0 only: setting that is no change."""


class UpgradeType(IntEnum):
    """Which way a level may move."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One wish for another level."""

    feature: str
    level: int
    kind: UpgradeType


def validate_update(update: FeatureUpdate, finalized: Mapping[str, int], node_id: int) -> None:
    """Raise BrokerError INVALID_UPDATE_VERSION, in Kafka's words, for a level that cannot be finalized."""
    if NEVER_NAMED.get(update.feature) == update.level:
        return
    levels = SUPPORTED_LEVELS.get(update.feature)
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


def _invalid(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_UPDATE_VERSION, reason)
