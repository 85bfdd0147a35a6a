"""The selection of the broker to ask, and the retries: the base of all admin calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, TypeVar

import trio

from ...protocol.apis import AnyApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.schema import Message
from ...protocol.topic_partition import AnyTopicPartition
from ..config import AdminConfig
from ..consumer.subscription import by_topic
from ..errors import COORDINATOR_MOVED_CODES, STALE_METADATA_CODES, ConnectionLostError, UnknownTopicError
from ..lifetime import BackgroundTasks
from ..metrics import Metrics
from ..wire.cluster import Cluster, CoordinatorType
from ..wire.retry import retry

T = TypeVar("T")
Response = TypeVar("Response", bound=Message)


class AdminBase:
    """The connections of an admin client, and its ways to send requests.

    Every method raises BrokerError for the first permanent refusal in a broker's answer, and DeadlineExceededError
    after `default.api.timeout.ms`.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: object) -> None:
        self.config = AdminConfig.from_properties(config)
        self._metrics = Metrics("admin-client", self.config.client_id)
        self._cluster = Cluster(bootstrap_servers, self.config, self._metrics)
        self._background = BackgroundTasks()

    async def __aenter__(self) -> Self:
        await self._background.open(self._start_tasks)
        return self

    async def _start_tasks(self, nursery: trio.Nursery) -> None:
        await nursery.start(self._cluster.run)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._background.close()

    # --- requests ---

    async def ask(self, node: int, request: Message, answer: type[Response], **options: int) -> Response:
        """Send a request to the given broker, also of an API without a method here; options as in
        `Connection.request`.
        """

        async def attempt() -> Response:
            if node not in self._cluster.brokers:
                await self._cluster.refresh([])
            return await self._cluster.request(node, request, answer, **options)

        return await self._retry(attempt, type(request).__name__)

    async def ask_once(self, node: int, request: Message, answer: type[Response], **options: int) -> Response:
        """Send a request as `ask` does, but without a retry.

        Raises ConnectionLostError if the broker closes the connection because of an unknown API.
        """
        if node not in self._cluster.brokers:
            await self._refresh_brokers()
        return await self._cluster.request(node, request, answer, **options)

    async def ask_any(self, request: Message, answer: type[Response]) -> Response:
        """Send a request to any broker."""

        async def attempt() -> Response:
            return await self._cluster.request_any(request, answer)

        return await self._retry(attempt, type(request).__name__)

    async def ask_controller(self, request: Message, answer: type[Response]) -> Response:
        """Send a request to the controller, or to any broker if that is none (KRaft's brokers forward such
        requests).
        """

        async def attempt() -> Response:
            await self._cluster.refresh([])
            if self._cluster.controller_id in self._cluster.brokers:
                return await self._cluster.request(self._cluster.controller_id, request, answer)
            return await self._cluster.request_any(request, answer)

        return await self._retry(attempt, type(request).__name__)

    async def ask_each(self, request: Message, answer: type[Response], **options: int) -> dict[int, Response]:
        """Send a request to all brokers; return their answers by node id."""
        await self._refresh_brokers()
        return {node: await self.ask(node, request, answer, **options) for node in sorted(self._cluster.brokers)}

    async def leader(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader. Raises UnknownTopicError if there is no such partition."""
        return (await self._leaders([(topic, partition)]))[topic, partition]

    async def speaks(self, key: AnyApiKey, *, newest: int | None = None) -> bool:
        """Return whether the brokers support an API, in a version up to `newest` if given."""
        try:
            await self.version(key, newest=newest)
        except BrokerError:
            return False
        return True

    async def version(self, key: AnyApiKey, *, newest: int | None = None) -> int:
        """Return the newest version of an API in common with the brokers, up to `newest` if given.

        Raises BrokerError UNSUPPORTED_VERSION; DeadlineExceededError if no broker can be reached within
        `default_api_timeout_ms`.
        """

        async def attempt() -> int:
            return (await self._cluster.any_connection()).versions.version(key, newest=newest)

        return await self._retry(attempt, "ApiVersions")

    # --- for the subclasses ---

    async def _refresh_brokers(self) -> None:
        async def attempt() -> None:
            await self._cluster.refresh([])

        await self._retry(attempt, "Metadata")

    async def _leaders(self, places: Iterable[AnyTopicPartition]) -> dict[AnyTopicPartition, int]:
        wanted = list(places)

        async def attempt() -> dict[AnyTopicPartition, int]:
            missing = {topic for topic, partition in wanted if self._cluster.leader(topic, partition) is None}
            if missing:
                await self._cluster.refresh(missing)
            leaders = {}
            for place in wanted:
                leader = self._cluster.leader(*place)
                if leader is None:
                    if place[0] in self._cluster.topics:
                        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place[0]}-{place[1]}")
                    raise UnknownTopicError(f"{place[0]}-{place[1]}")
                leaders[place] = leader
            return leaders

        return await self._retry(attempt, "Metadata")

    async def _ask_leaders(
        self,
        places: Iterable[AnyTopicPartition],
        ask: Callable[[int, list[AnyTopicPartition]], Awaitable[dict[AnyTopicPartition, T]]],
    ) -> dict[AnyTopicPartition, T]:
        """Call `ask` with each leader and its partitions, again with a new leader after NOT_LEADER_OR_FOLLOWER."""
        wanted = list(places)
        found: dict[AnyTopicPartition, T] = {}

        async def attempt() -> None:
            by_leader: defaultdict[int, list[AnyTopicPartition]] = defaultdict(list)
            missing = [place for place in wanted if place not in found]
            for place, leader in (await self._leaders(missing)).items():
                by_leader[leader].append(place)
            for leader, its_places in by_leader.items():
                found.update(await ask(leader, sorted(its_places)))

        def before_retry(failure: Exception) -> None:
            if isinstance(failure, ConnectionLostError) or (
                isinstance(failure, BrokerError) and failure.code in STALE_METADATA_CODES
            ):
                for topic, _ in wanted:
                    self._cluster.topics.pop(topic, None)

        await self._retry(attempt, "the leaders", before_retry)
        return found

    async def _ask_coordinator(
        self,
        key: str,
        attempt: Callable[[int], Awaitable[T]],
        what: str,
        kind: CoordinatorType = CoordinatorType.GROUP,
    ) -> T:
        """Call `attempt` with the coordinator's node id until it succeeds."""

        async def find_and_attempt() -> T:
            return await attempt(await self._cluster.coordinator(kind, key))

        def before_retry(failure: Exception) -> None:
            if not isinstance(failure, BrokerError) or failure.code in COORDINATOR_MOVED_CODES:
                self._cluster.forget_coordinator(kind, key)

        return await self._retry(find_and_attempt, what, before_retry)

    async def _retry(
        self,
        attempt: Callable[[], Awaitable[T]],
        what: str,
        before_retry: Callable[[Exception], None] | None = None,
    ) -> T:
        return await retry(
            attempt,
            self.config,
            timeout_ms=self.config.default_api_timeout_ms,
            what=what,
            before_retry=before_retry,
        )


def check_names(names: Iterable[str]) -> list[str]:
    """Return the names as a list.

    Raises TypeError for a single name: it would be taken for its letters, each of them the name of a topic or group.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"names must be an iterable of str, not {names!r}")
    listed = list(names)
    for name in listed:
        if not isinstance(name, str):
            raise TypeError(f"a name must be str, not {type(name).__name__}")
    return listed


def raise_for(code: int, message: str | None) -> None:
    """Raise BrokerError unless `code` is NONE."""
    if code:
        raise BrokerError(ErrorCode(code), message)


def by_topic_with(values: Mapping[AnyTopicPartition, T]) -> dict[str, Sequence[tuple[int, T]]]:
    """Return the partitions of each topic with their values, both in order."""
    return {
        topic: [(partition, values[topic, partition]) for partition in partitions]
        for topic, partitions in by_topic(values).items()
    }
