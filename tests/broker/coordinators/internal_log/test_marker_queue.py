"""The queue of markers for one broker: in order, one request at a time, with an outcome for each marker."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from gregor.broker.coordinators.transactions.marker_queue import MarkerQueue
from gregor.broker.server.pending import Pending
from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from gregor.protocol.topic_partition import TopicPartition

PARTITION = TopicPartition("t", 0)


class SlowBroker:
    """A broker that answers on demand, refuses markers of producer 4, and accepts one request at a time."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self._answer: Pending[bool] = Pending()

    def go_on(self, *, is_there: bool = True) -> None:
        self._answer.complete(is_there)

    async def ask(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        self._answer = answer = Pending[bool]()
        self.asked.append([marker.producer_id for marker in request.markers])
        if not await answer.wait():
            raise BrokerError(ErrorCode.NETWORK_EXCEPTION)
        return WriteTxnMarkersResponse(markers=[self._written(marker) for marker in reversed(request.markers)])

    @staticmethod
    def _written(marker: WritableTxnMarker) -> WritableTxnMarkerResult:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if marker.producer_id == 4 else ErrorCode.NONE
        partition = WritableTxnMarkerPartitionResult(partition_index=PARTITION.partition, error_code=code)
        topic = WritableTxnMarkerTopicResult(name=PARTITION.topic, partitions=[partition])
        return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[topic])


class Scene:
    """A queue of markers, and the outcome of each write."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.broker = SlowBroker()
        self.told: dict[int, set[TopicPartition]] = {}
        self._queue = MarkerQueue(self.broker.ask)
        self._nursery = nursery

    async def write(self, *producer_ids: int) -> None:
        for producer_id in producer_ids:
            self._nursery.start_soon(self._write, producer_id)
            await trio.testing.wait_all_tasks_blocked()

    async def go_on(self, *, is_there: bool = True) -> None:
        self.broker.go_on(is_there=is_there)
        await trio.testing.wait_all_tasks_blocked()

    async def _write(self, producer_id: int) -> None:
        topic = WritableTxnMarkerTopic(name=PARTITION.topic, partition_indexes=[PARTITION.partition])
        self.told[producer_id] = await self._queue.write(WritableTxnMarker(producer_id=producer_id, topics=[topic]))


async def test_markers_queued_during_a_request_go_in_one_next_request(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        await scene.write(1, 2, 3, 4)
        assert scene.broker.asked == [[1]]
        await scene.go_on()
        assert (scene.broker.asked, scene.told) == ([[1], [2, 3, 4]], {1: {PARTITION}})
        await scene.write(5)
        await scene.go_on()
        await scene.go_on()
        assert scene.broker.asked == [[1], [2, 3, 4], [5]]
        assert scene.told == {1: {PARTITION}, 2: {PARTITION}, 3: {PARTITION}, 4: set(), 5: {PARTITION}}


async def test_markers_of_a_failed_request_are_reported_as_written_to_no_partition(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        scene = Scene(nursery)
        await scene.write(1, 2)
        await scene.go_on(is_there=False)
        assert scene.told == {1: set()}
        await scene.go_on()
        assert scene.told == {1: set(), 2: {PARTITION}}
