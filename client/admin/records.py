"""Records: the first and last offsets of partitions, and the deletion of the oldest records."""

from __future__ import annotations

from collections.abc import Mapping

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
from ..consumer.subscription import TopicPartition
from ..wire.offset_lookup import OffsetAndTimestamp, list_offsets
from .base import AdminBase, by_topic_with, raise_for

CONSUMER_REPLICA_ID = -1


class RecordAdmin(AdminBase):
    """The methods of the admin client for records."""

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the offsets for LATEST, EARLIEST, MAX_TIMESTAMP or a time in ms; see `offset_lookup.list_offsets`."""
        return await list_offsets(
            self._cluster,
            wanted,
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
            read_committed=read_committed,
        )

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all up to the high watermark); returns the new first offsets."""

        async def ask(leader: int, places: list[TopicPartition]) -> dict[TopicPartition, int]:
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
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (largest leader epoch up to the given one, offset after its last record); (-1, -1) if unknown
        (KIP-320).
        """

        async def ask(leader: int, places: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
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
