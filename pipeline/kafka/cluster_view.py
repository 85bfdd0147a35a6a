"""Topics, leaders, first and last offsets of a cluster for a driver or a task: blocking, with retries."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from ...client.errors import STALE_METADATA_CODES, ConnectionLostError, is_retriable
from ...client.wire.offset_lookup import OffsetAndTimestamp, list_offsets_request, read_offsets
from ...protocol.apis import ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.list_offsets import ListOffsetsResponse
from ...protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ...protocol.topic_partition import AnyTopicPartition
from ..errors import PipelineError
from .wire import Wire, WireSettings

T = TypeVar("T")

BACKOFF_S = 0.1
MAX_BACKOFF_S = 1.0
PATIENCE_S = 60.0
"""The time limit of retries after passing failures (a broker restarts, a leader moves)."""


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic: its id, if brokers return one, and its partitions in order."""

    name: str
    topic_id: UUID
    partitions: tuple[int, ...]


class ClusterView:
    """The metadata of a cluster for one process; a context manager that closes its connections.

    Methods retry for PATIENCE_S, or as often as the settings say, and raise PipelineError then, or at once for a
    permanent failure.
    """

    def __init__(self, settings: WireSettings) -> None:
        self._settings = settings
        self._wires: dict[tuple[str, int], Wire] = {}
        self._brokers: dict[int, tuple[str, int]] = {}
        self._leaders: dict[AnyTopicPartition, int] = {}
        self.cluster_id: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to all brokers."""
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def is_quiet(self) -> bool:
        """Return whether all connections are open, as far as is known, and no answer is on its way."""
        return all(wire.is_quiet() for wire in self._wires.values())

    # --- topics ---

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicView]:
        """Return these topics, or all but the internal ones. Raises PipelineError for a topic that does not exist."""
        wanted = None if names is None else list(names)

        def attempt() -> dict[str, TopicView]:
            answer = self._ask_metadata(wanted)
            views = {}
            for topic in answer.topics:
                if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise PipelineError(f"topic {topic.name} does not exist at {self._servers}")
                if topic.error_code:
                    raise BrokerError(ErrorCode(topic.error_code), f"topic {topic.name}")
                if topic.name is not None and not (wanted is None and topic.is_internal):
                    indices = tuple(sorted(partition.partition_index for partition in topic.partitions))
                    views[topic.name] = TopicView(topic.name, topic.topic_id, indices)
            return views

        return self.retry("Metadata", attempt)

    def _ask_metadata(self, names: list[str] | None) -> MetadataResponse:
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        wire = self._any_wire()
        if names is None and wire.versions.version(ApiKey.METADATA) == 0:
            request.topics = []
        answer = wire.request(request, MetadataResponse)
        self.cluster_id = answer.cluster_id
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            for partition in topic.partitions:
                place = (topic.name or "", partition.partition_index)
                if partition.leader_id >= 0:
                    self._leaders[place] = partition.leader_id
                else:
                    self._leaders.pop(place, None)
        return answer

    # --- connections ---

    def leader(self, topic: str, partition: int) -> Wire:
        """Return a connection to the partition's leader. Raises BrokerError or ConnectionLostError: see `retry`."""
        place = (topic, partition)
        if place not in self._leaders:
            self._ask_metadata([topic])
        if place not in self._leaders:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return self._wire(*self._brokers[self._leaders[place]])

    def forget(self, topic: str, partition: int) -> None:
        """Forget the leader, so that the next call asks for it again."""
        self._leaders.pop((topic, partition), None)

    def _wire(self, host: str, port: int) -> Wire:
        if (host, port) not in self._wires:
            self._wires[host, port] = Wire(host, port, self._settings)
        return self._wires[host, port]

    def _any_wire(self) -> Wire:
        for wire in self._wires.values():
            return wire
        failure: Exception | None = None
        for host, port in dict.fromkeys((*self._settings.bootstrap, *self._brokers.values())):
            try:
                return self._wire(host, port)
            except ConnectionLostError as fault:
                failure = fault
        raise failure or ConnectionLostError("no bootstrap servers")

    @property
    def _servers(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._settings.bootstrap)

    def retry(self, what: str, attempt: Callable[[], T]) -> T:
        """Call `attempt` until it succeeds. Raises PipelineError when a failure is permanent, or lasts too long."""
        deadline = time.monotonic() + PATIENCE_S
        retries = self._settings.offset_retries
        pause_s = BACKOFF_S if retries is None else self._settings.offset_retry_interval_s
        for retry in itertools.count():
            try:
                return attempt()
            except (BrokerError, ConnectionLostError) as failure:
                is_last = time.monotonic() + pause_s > deadline if retries is None else retry >= retries
                if is_last or not is_retriable(failure):
                    raise PipelineError(f"{what} at {self._servers}: {failure}") from failure
                if isinstance(failure, ConnectionLostError):
                    self.close()
                if isinstance(failure, ConnectionLostError) or failure.code in STALE_METADATA_CODES:
                    self._leaders.clear()
            time.sleep(pause_s)
            if retries is None:
                pause_s = min(pause_s * 2, MAX_BACKOFF_S)
        raise AssertionError("the loop has no end of its own")

    # --- offsets ---

    def list_offsets(
        self, wanted: Mapping[AnyTopicPartition, int], *, read_committed: bool = False
    ) -> dict[AnyTopicPartition, int | None]:
        """Return by partition the offset of LATEST, EARLIEST or of the first record not older than a time in ms (None:
        none).

        Raises PipelineError.
        """
        found: dict[AnyTopicPartition, int | None] = {}

        def attempt() -> None:
            missing = {place: timestamp for place, timestamp in wanted.items() if place not in found}
            unknown = {topic for topic, partition in missing if (topic, partition) not in self._leaders}
            if unknown:
                self._ask_metadata(sorted(unknown))
            by_leader: defaultdict[Wire, dict[AnyTopicPartition, int]] = defaultdict(dict)
            for place, timestamp in missing.items():
                by_leader[self.leader(*place)][place] = timestamp
            for wire, places in by_leader.items():
                _ask_offsets(wire, places, found, read_committed=read_committed)

        self.retry("ListOffsets", attempt)
        return found


def _ask_offsets(
    wire: Wire,
    places: Mapping[AnyTopicPartition, int],
    found: dict[AnyTopicPartition, int | None],
    *,
    read_committed: bool,
) -> None:
    version = wire.versions.version(ApiKey.LIST_OFFSETS)
    request = list_offsets_request(places, version, read_committed=read_committed)
    answered: dict[AnyTopicPartition, OffsetAndTimestamp | None] = {}
    failure = read_offsets(wire.request(request, ListOffsetsResponse), version, answered)
    found.update({place: None if each is None else each.offset for place, each in answered.items()})
    if failure is not None:
        raise failure
