"""The groups that this broker coordinates, of both protocols, by id."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from .classic_group import ClassicGroup
from .consumer_group import ConsumerGroup

Group: TypeAlias = ClassicGroup | ConsumerGroup


class GroupMap:
    """A map of all groups by id; a group has one protocol at a time, and a change of its protocol replaces it."""

    def __init__(self) -> None:
        self._by_id: dict[str, Group] = {}

    def __iter__(self) -> Iterator[Group]:
        """Iterate over the groups that exist now; groups may be added and removed meanwhile."""
        return iter(list(self._by_id.values()))

    def get(self, group_id: str) -> Group | None:
        """Return a group, None if there is none with this id."""
        return self._by_id.get(group_id)

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return a classic group; None if there is none with this id, or it uses the consumer protocol."""
        group = self._by_id.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def consumer(self, group_id: str) -> ConsumerGroup | None:
        """Return a group of the consumer protocol; None if there is none with this id, or it is classic."""
        group = self._by_id.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def put(self, group: Group) -> None:
        """Add a group, or replace the group with its id."""
        self._by_id[group.group_id] = group

    def remove(self, group_id: str) -> None:
        """Remove the group with this id, if there is one."""
        self._by_id.pop(group_id, None)
