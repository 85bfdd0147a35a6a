"""Records: the first and last offsets of partitions, and the deletion of the oldest records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ...protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ...protocol.topic_partition import AnyTopicPartition
from ..wire.offset_lookup import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from .base import AdminBase, by_topic_with, raise_for

CONSUMER_REPLICA_ID = -1


class RecordAdmin(AdminBase):
    """The methods of the admin client for records."""

    async def list_offsets(
        self, wanted: Mapping[AnyTopicPartition, int], *, read_committed: bool = False
    ) -> dict[AnyTopicPartition, OffsetAndTimestamp | None]:
        """Return the offsets for LATEST, EARLIEST, MAX_TIMESTAMP or a time in ms; see `offset_lookup.list_offsets`."""
        return await list_offsets(
            self._cluster,
            wanted,
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
            read_committed=read_committed,
        )

    async def offsets_since(self, places: Iterable[AnyTopicPartition], timestamp: int) -> dict[AnyTopicPartition, int]:
        """Return the offsets for LATEST, EARLIEST or a time in ms; the log's end where no record is that young."""
        wanted = dict.fromkeys(places, timestamp)
        found = await self.list_offsets(wanted)
        offsets = {place: entry.offset for place, entry in found.items() if entry is not None}
        missing = [place for place in wanted if place not in offsets]
        return offsets | (await self.offsets_since(missing, LATEST) if missing else {})

    async def within_log(self, wanted: Mapping[AnyTopicPartition, int]) -> dict[AnyTopicPartition, int]:
        """Return the offsets, moved to the nearer end of the log if outside, as kafka-consumer-groups does."""
        first = await self.offsets_since(wanted, EARLIEST)
        last = await self.offsets_since(wanted, LATEST)
        return {place: min(max(offset, first[place]), last[place]) for place, offset in wanted.items()}

    async def delete_records(self, before: Mapping[AnyTopicPartition, int]) -> dict[AnyTopicPartition, int]:
        """Delete the records before these offsets (-1: all up to the high watermark); returns the new first offsets."""

        async def ask(leader: int, places: list[AnyTopicPartition]) -> dict[AnyTopicPartition, int]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[DeleteRecordsPartition(partition_index=p, offset=offset) for p, offset in entries],
                    )
                    for topic, entries in by_topic_with({place: before[place] for place in places}).items()
                ],
                timeout_ms=self.config.request_timeout_ms,
            )
            answer = await self._cluster.request(leader, request, DeleteRecordsResponse)
            first_offsets = {}
            for topic in answer.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, f"{topic.name}-{part.partition_index}")
                    first_offsets[topic.name, part.partition_index] = part.low_watermark
            return first_offsets

        return await self._ask_leaders(before, ask)

    async def end_offsets_of_epochs(
        self, epochs: Mapping[AnyTopicPartition, int]
    ) -> dict[AnyTopicPartition, tuple[int, int]]:
        """Return (largest leader epoch up to the given one, offset after its last record); (-1, -1) if unknown
        (KIP-320).
        """

        async def ask(leader: int, places: list[AnyTopicPartition]) -> dict[AnyTopicPartition, tuple[int, int]]:
            request = OffsetForLeaderEpochRequest(
                replica_id=CONSUMER_REPLICA_ID,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[OffsetForLeaderPartition(partition=p, leader_epoch=epoch) for p, epoch in entries],
                    )
                    for topic, entries in by_topic_with({place: epochs[place] for place in places}).items()
                ],
            )
            answer = await self._cluster.request(leader, request, OffsetForLeaderEpochResponse)
            ends = {}
            for topic in answer.topics:
                for part in topic.partitions:
                    raise_for(part.error_code, f"{topic.topic}-{part.partition}")
                    ends[topic.topic, part.partition] = (part.leader_epoch, part.end_offset)
            return ends

        return await self._ask_leaders(epochs, ask)
