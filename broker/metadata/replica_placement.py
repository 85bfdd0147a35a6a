"""Placement of replicas on brokers: as requested, validated as in Kafka, or spread evenly."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from ...protocol.errors import BrokerError, ErrorCode

DEFAULT = -1
"""A count or replication factor that is left to the broker."""


def validate_replicas(replicas: Sequence[int], brokers: Sequence[int]) -> None:
    """Raise BrokerError INVALID_REPLICA_ASSIGNMENT if one partition cannot have these replicas."""
    if not replicas:
        raise _misplaced("The manual partition assignment includes an empty replica list.")
    for broker in sorted(replicas):
        if broker not in brokers:
            raise _misplaced(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
    seen: set[int] = set()
    for broker in replicas:
        if broker in seen:
            raise _misplaced(f"The manual partition assignment includes the broker {broker} more than once.")
        seen.add(broker)


def validate_assignments(assignments: Iterable[tuple[int, Sequence[int]]], brokers: Sequence[int]) -> list[list[int]]:
    """Return the replicas by partition from (index, replicas) pairs.

    Raises BrokerError INVALID_REPLICA_ASSIGNMENT.
    """
    found: dict[int, list[int]] = {}
    for index, replicas in assignments:
        if index in found:
            raise _misplaced(f"Found multiple manual partition assignments for partition {index}")
        validate_replicas(replicas, brokers)
        found[index] = list(replicas)
    return _consecutive(found)


def _consecutive(found: Mapping[int, list[int]]) -> list[list[int]]:
    if sorted(found) != list(range(len(found))):
        raise _misplaced("partitions should be a consecutive 0-based integer sequence")
    return [found[index] for index in range(len(found))]


def validate_additions(
    assignments: Sequence[Sequence[int]], additions: int, replication_factor: int, brokers: Sequence[int]
) -> list[list[int]]:
    """Return the replicas of the partitions added to a topic. Raises BrokerError INVALID_REPLICA_ASSIGNMENT."""
    if len(assignments) != additions:
        raise _misplaced(
            f"Attempted to add {additions} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified."
        )
    for replicas in assignments:
        validate_replicas(replicas, brokers)
        if len(replicas) != replication_factor:
            raise _misplaced(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {replication_factor} replica(s)."
            )
    return [list(replicas) for replicas in assignments]


def spread(
    count: int, replication_factor: int, brokers: Sequence[int], *, start: int = 0, shift: int = 0
) -> list[list[int]]:
    """Return the replicas of ``count`` partitions from number ``start`` on; brokers become leaders in turn.

    In each round over the brokers the followers differ, starting with those ``shift`` further on, so that the
    partitions of a failed broker get leaders on all other brokers (Kafka `AdminUtils`, `StripedReplicaPlacer`). Raises
    BrokerError INVALID_REPLICATION_FACTOR if there are not enough brokers.
    """
    if replication_factor > len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    placed = []
    for index in range(start, start + count):
        first = index % len(brokers)
        others = [*brokers[first + 1 :], *brokers[:first]]
        turn = (shift + index // len(brokers)) % max(len(others), 1)
        placed.append([brokers[first], *others[turn:], *others[:turn]][:replication_factor])
    return placed


def alternate_racks(racks: Mapping[int, str | None]) -> list[int]:
    """Return the brokers in an order in which neighbours are in different racks as far as possible (KIP-36).

    ``racks``: the rack of each broker. Without racks, or with some unknown, the order is that of the numbers.
    """
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        rack = racks[broker]
        if rack is None:
            return sorted(racks)
        by_rack.setdefault(rack, []).append(broker)
    rows = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for row in rows for broker in row if broker is not None]


def _misplaced(reason: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
