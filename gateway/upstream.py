"""The Kafka cluster behind a gateway: its brokers, leaders and coordinators, and new links to its brokers."""

from __future__ import annotations

import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random

import trio

from ..broker.config import BrokerConfig, ConfigError
from ..broker.server.readiness import Readiness
from ..client.errors import AuthenticationFailedError, ConnectionLostError
from ..client.errors import ConfigError as ClientConfigError
from ..client.metrics import Metrics
from ..client.wire.cluster import Cluster, CoordinatorType
from ..protocol.errors import BrokerError, ErrorCode
from ..protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ..protocol.messages.metadata import MetadataResponse
from ..protocol.schema import NO_UUID
from .dialling import dial, upstream_client_config
from .link import Link
from .offered import VersionRange, served_versions
from .reachability import Reachability
from .upstream_session import UpstreamSession

logger = logging.getLogger(__name__)

MOST_COORDINATORS = 10_000
"""Most coordinators that are remembered; others are asked for when they are needed."""


class UnreachableError(Exception):
    """An error for an upstream broker that cannot be reached now."""


class Upstream:
    """A view of the upstream cluster, shared by all clients; `run` keeps it up to date."""

    def __init__(self, config: BrokerConfig, readiness: Readiness) -> None:
        """Prepare the view. Raises ConfigError if the upstream cluster is not named."""
        self._config = config
        self._client_config = upstream_client_config(config)
        try:
            self._cluster = Cluster(config.gregor_gateway_upstream, self._client_config, Metrics("admin-client"))
        except ClientConfigError as error:
            raise ConfigError(f"gregor.gateway.upstream: {error}") from None
        self.reachability = Reachability(",".join(config.gregor_gateway_upstream))
        self._readiness = readiness
        self._random = Random()
        self._leaders: dict[str, list[int]] = {}
        self.leaders_state = 0
        """A number that grows with each change of what is known of topics and leaders."""
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._coordinators: OrderedDict[tuple[int, str], int] = OrderedDict()
        self._nursery: trio.Nursery | None = None
        self.common_versions: Mapping[int, VersionRange] = {}
        """The versions that all brokers serve, by the number of the API; empty until the cluster has answered once."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the cluster's brokers until cancelled; report started at once, whether the cluster answers or not."""
        async with trio.open_nursery() as self._nursery:
            await self._nursery.start(self._cluster.run)
            self._nursery.start_soon(self.reachability.report_silence)
            task_status.started()
            while True:
                await self._refresh_brokers()
                await trio.sleep(self._config.gregor_gateway_metadata_refresh_ms / 1000)

    async def _refresh_brokers(self) -> None:
        try:
            await self._cluster.refresh(())
        except (ConnectionLostError, BrokerError) as error:
            self.reachability.failed(error)
            return
        self.reachability.answered()
        listed: list[Mapping[int, VersionRange]] = []
        for node in self.brokers:
            # A broker that cannot be reached is left out: the others answer.
            with contextlib.suppress(ConnectionLostError, AuthenticationFailedError):
                listed.append(served_versions((await self._cluster.connection(node)).versions.offered))
        self.common_versions = _in_common(listed)

    # --- brokers

    @property
    def brokers(self) -> Mapping[int, tuple[str, int]]:
        """Host and port of each upstream broker, by node id; empty until the cluster has answered once."""
        return self._cluster.brokers

    @property
    def controller(self) -> int:
        """The node id that the cluster gives as its controller, -1 if none is known."""
        return self._cluster.controller_id

    async def dial(self, node: int, on_lost: Callable[[Link], None]) -> Link:
        """Return a new link to a broker. Raises UnreachableError."""
        if node not in self.brokers:
            await self._refresh_brokers()
        try:
            control = await self._cluster.connection(node)
            host, port = self.brokers[node]
            logs_in = not self._config.gregor_gateway_sasl_pass_through
            transport, session_s = await dial(host, port, self._client_config, logs_in=logs_in)
        except (ConnectionLostError, AuthenticationFailedError, KeyError) as error:
            raise UnreachableError(str(error)) from error
        assert self._nursery is not None
        return Link(
            transport,
            node,
            served_versions(control.versions.offered),
            self._readiness,
            self._nursery,
            limit_bytes=self._config.gregor_gateway_response_max_bytes,
            on_lost=on_lost,
            session=None if session_s is None else UpstreamSession(self._client_config, control.versions, session_s),
        )

    async def dial_any(self, on_lost: Callable[[Link], None]) -> Link:
        """Return a new link to any broker that can be reached. Raises UnreachableError."""
        if not self.brokers:
            await self._refresh_brokers()
        nodes = list(self.brokers)
        self._random.shuffle(nodes)
        reason = "no upstream broker is known"
        for node in nodes:
            try:
                return await self.dial(node, on_lost)
            except UnreachableError as error:
                reason = str(error)
        raise UnreachableError(reason)

    # --- leaders

    def learn(self, answer: MetadataResponse) -> None:
        """Store the leaders that an answer to Metadata names."""
        for topic in answer.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                if topic.name is not None and self._leaders.pop(topic.name, None) is not None:
                    self.leaders_state += 1
                continue
            leaders = [-1] * (max((part.partition_index for part in topic.partitions), default=-1) + 1)
            for part in topic.partitions:
                leaders[part.partition_index] = part.leader_id
            if topic.name is not None:
                self._store(topic.name, leaders)
            if topic.topic_id != NO_UUID:
                self._store(str(topic.topic_id), leaders)
                if topic.name is not None:
                    self._learn_id(topic.name, str(topic.topic_id))

    def _store(self, topic: str, leaders: list[int]) -> None:
        if self._leaders.get(topic) != leaders:
            self._leaders[topic] = leaders
            self.leaders_state += 1

    def _learn_id(self, name: str, topic_id: str) -> None:
        former = self._ids.get(name)
        if former != topic_id:
            if former is not None:
                # The topic was deleted and created again.
                self._leaders.pop(former, None)
                self._names.pop(former, None)
            self._ids[name], self._names[topic_id] = topic_id, name

    # The arguments of these methods are the name of a topic, or its id as text.

    def leader(self, topic: str, partition: int) -> int:
        """Return the node id of a partition's leader as last heard, -1 if unknown."""
        leaders = self._leaders.get(topic, ())
        return leaders[partition] if 0 <= partition < len(leaders) else -1

    def forget_leaders(self, topics: Iterable[str]) -> None:
        """Forget the leaders of topics, because a broker has refused to act as one."""
        for topic in topics:
            self.leaders_state += 1
            self._leaders.pop(topic, None)
            self._leaders.pop(self._names.get(topic) or self._ids.get(topic, ""), None)

    async def refresh_leaders(self, topics: Iterable[str]) -> None:
        """Ask the cluster for the leaders of topics; nothing changes if it does not answer."""
        try:
            self.learn(await self._cluster.refresh({self._names.get(topic, topic) for topic in topics}))
        except (ConnectionLostError, AuthenticationFailedError, BrokerError) as error:
            logger.debug("no metadata of the upstream cluster: %s", error)

    # --- coordinators

    def learn_coordinator(self, key_type: int, key: str, node: int) -> None:
        """Store the coordinator that an answer to FindCoordinator names."""
        self._coordinators[key_type, key] = node
        self._coordinators.move_to_end((key_type, key))
        while len(self._coordinators) > MOST_COORDINATORS:
            self._coordinators.popitem(last=False)

    def forget_coordinator(self, key_type: int, key: str) -> None:
        """Forget a coordinator, because the broker has refused to act as one or cannot be reached."""
        self._coordinators.pop((key_type, key), None)

    async def coordinator(self, key_type: int, key: str) -> int:
        """Return the node id of the coordinator of a group or transactional id. Raises UnreachableError."""
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        try:
            answer = await self._cluster.request_any(
                FindCoordinatorRequest(key=key, key_type=CoordinatorType(key_type)), FindCoordinatorResponse
            )
        except (ConnectionLostError, AuthenticationFailedError, BrokerError) as error:
            raise UnreachableError(str(error)) from error
        if answer.error_code:
            raise UnreachableError(f"the coordinator of {key!r} is unknown: {ErrorCode(answer.error_code).name}")
        self.learn_coordinator(key_type, key, answer.node_id)
        return answer.node_id


def _in_common(listed: Sequence[Mapping[int, VersionRange]]) -> dict[int, VersionRange]:
    """Return the versions that are in all mappings."""
    if not listed:
        return {}
    shared = set.intersection(*(set(each) for each in listed))
    ranges = {key: (max(each[key][0] for each in listed), min(each[key][1] for each in listed)) for key in shared}
    return {key: (lowest, highest) for key, (lowest, highest) in ranges.items() if lowest <= highest}
