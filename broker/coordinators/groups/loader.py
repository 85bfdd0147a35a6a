"""The loader of a partition of `__consumer_offsets`, which restores groups and offsets record by record."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ....protocol.errors import BrokerError, DecodeError
from ....protocol.records.v2 import NO_PRODUCER_ID
from ..internal_log.coordinator_log import Replayed, ReplayedMarker, ReplayedRecord
from .classic_group import ClassicGroup
from .committed_offsets import CommittedOffsets
from .consumer_group_log import CONSUMER_GROUP_KEYS, replay_record
from .group_log import GROUP_KEY, OFFSET_KEYS, parse_group, parse_group_key, parse_offset, parse_offset_key, version_of
from .group_map import GroupMap

logger = logging.getLogger(__name__)


class PartitionLoader:
    """A loader that replays one partition into groups of either protocol and `offsets`.

    The last record of a key is valid: what is loaded may be outdated until the end of the replay.
    Offsets that a producer has committed in a transaction are pending until its commit marker.
    """

    def __init__(
        self,
        groups: GroupMap,
        offsets: CommittedOffsets,
        resume: Callable[[set[str]], None] = lambda _: None,
    ) -> None:
        """Load into the given maps; ``resume`` is called at the end with every group id in the partition."""
        self._resume = resume
        self._groups = groups
        self._offsets = offsets
        self.group_ids: set[str] = set()
        """The ids of all groups that have records in the partition."""

    def replay(self, entries: Iterable[Replayed]) -> None:
        """Replay the next records of the partition. A record that cannot be read is skipped with a warning."""
        for entry in entries:
            if isinstance(entry, ReplayedMarker):
                for group_id in self._offsets.groups_in_transaction(entry.producer_id):
                    if group_id in self.group_ids:
                        self._offsets.end_transaction(group_id, entry.producer_id, is_commit=entry.is_commit)
                continue
            try:
                self._replay_record(entry)
            except (DecodeError, BrokerError) as error:
                # A BrokerError means a version that only a later Kafka writes.
                logger.warning("a record at offset %d of __consumer_offsets cannot be read: %s", entry.offset, error)

    def _replay_record(self, record: ReplayedRecord) -> None:
        kind = version_of(record.key)
        if kind in OFFSET_KEYS:
            self._replay_offset(record)
        elif kind == GROUP_KEY:
            self._replay_group(record)
        elif kind in CONSUMER_GROUP_KEYS:
            self.group_ids.add(replay_record(self._groups, record.key, record.value))
        else:
            logger.warning(
                "skipped a record of unknown kind %d at offset %d of __consumer_offsets", kind, record.offset
            )

    def _replay_offset(self, record: ReplayedRecord) -> None:
        group_id, partition = parse_offset_key(record.key)
        self.group_ids.add(group_id)
        if record.value is None:
            self._offsets.remove(group_id, partition)
            return
        offset = parse_offset(record.value, record.offset)
        if record.producer_id == NO_PRODUCER_ID:
            self._offsets.put(group_id, partition, offset)
        else:
            self._offsets.put_pending(group_id, record.producer_id, partition, offset)

    def _replay_group(self, record: ReplayedRecord) -> None:
        group_id = parse_group_key(record.key)
        self.group_ids.add(group_id)
        if record.value is not None:
            self._groups.put(parse_group(group_id, record.value))
        elif self._groups.classic(group_id) is not None:
            self._groups.remove(group_id)

    def resume(self) -> None:
        """Create a group for each id that only has offsets, and resume all loaded groups."""
        for group_id in self.group_ids:
            if self._offsets.of(group_id) and self._groups.get(group_id) is None:
                self._groups.put(ClassicGroup(group_id))
        self._resume(self.group_ids)
