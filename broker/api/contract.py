"""The contract of handlers: their argument `RequestContext`, and `Api`, one row of the table of APIs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...protocol.apis import AnyApiKey
from ...protocol.kafka_4_floor import KAFKA_4_FLOORS
from ...protocol.schema import Message
from ..quotas.work_meter import WorkMeter
from ..server.client_connection import Address, ClientConnection, Hangup
from ..server.late_answer import LateAnswer
from ..server.parts import Answer
from .services import Services

VersionRange: TypeAlias = tuple[int, int]
"""Lowest and highest version."""


class RequestDispatch(Protocol):
    """A view of the dispatcher that the handler of a request may use."""

    @property
    def offered(self) -> Mapping[AnyApiKey, VersionRange]:
        """The versions that ApiVersions lists, by API."""

    async def answer(self, frame: memoryview, client: ClientConnection) -> Answer | None:
        """Answer one request frame; see `Dispatcher.answer`."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """A record of the surroundings of one request, for its handler."""

    services: Services
    client: ClientConnection
    api: Api
    api_version: int
    dispatch: RequestDispatch
    correlation_id: int = 0
    client_id: str | None = None
    closing: bool = field(default=False)
    """Set by a handler to close the connection after this answer (or instead of an answer)."""
    work: WorkMeter | None = None
    """Measures the handler's time if client quotas are set."""
    throttle_ms: int = 0
    """How long the client must wait for a quota, as found by the handler."""

    @property
    def api_key(self) -> AnyApiKey:
        return self.api.key

    @property
    def peer(self) -> Address:
        return self.client.peer

    @property
    def local_address(self) -> Address:
        return self.client.local_address

    @property
    def listener_name(self) -> str:
        return self.client.listener_name

    @property
    def connection_id(self) -> str:
        return self.client.connection_id

    @property
    def is_forwarded(self) -> bool:
        return self.client.is_forwarded

    @property
    def hangup(self) -> Hangup:
        return self.client.hangup

    @property
    def software_name(self) -> str:
        return self.client.software_name

    @property
    def software_version(self) -> str:
        return self.client.software_version


Handler: TypeAlias = Callable[[Any, RequestContext], Awaitable[Any]]
"""Takes a typed request and returns the typed response, or None if the client expects no answer."""

ShortCut: TypeAlias = Callable[[Services, memoryview, int, int, int], bytes | LateAnswer | None]
"""Answers common requests of an API from their bytes, without a task. Arguments: services, frame, position of the body,
version, correlation id. Returns the frame of the answer or a pending answer, empty bytes if the client expects no
answer, or None if the handler must answer."""


def always(request: Any) -> bool:
    """Return True: the value of `Api.is_for_controller` for an API that only the controller answers."""
    return True


class Api(NamedTuple):
    """A row of the table of APIs, which holds all properties of an API besides its schema."""

    key: AnyApiKey
    min_version: int
    max_version: int
    handler: Handler
    short_cut: ShortCut | None = None
    is_for_controller: Callable[[Any], bool] | None = None
    """Whether only the controller may answer a request; other nodes forward such a request to the controller."""
    waits_for_replicas: bool = False
    """Whether a request may write to an internal topic or report such a write: in a cluster of several brokers the
    answer waits until the write is replicated."""
    is_advertised: bool = True
    """Whether ApiVersions lists the API; telemetry is served but not listed, as in Kafka without a receiver plugin."""
    max_version_with_transactions_v2: int | None = None
    """The highest version once `transaction.version` is finalized at 2 (KIP-890), if it differs from `max_version`."""
    is_for_controller_tools: bool = False
    """Whether controllers serve the API too: Kafka's tools use the API with --bootstrap-controller."""
    changes_nothing: bool = False
    """Whether requests only read: a fault rule may refuse such a request after the handler has run."""
    strict_quota_since: int | None = None
    """The first version whose clients accept THROTTLING_QUOTA_EXCEEDED, for APIs under ``controller_mutation_rate``
    (KIP-599); clients of older versions are only delayed."""
    abortable_since: int | None = None
    """The first version whose producers accept TRANSACTION_ABORTABLE, for APIs that write to transactions (KIP-890)."""
    transactions_v2_since: int | None = None
    """The first version in which the broker adds the partitions of a write to the transaction (KIP-890)."""

    @property
    def kafka_4_floor(self) -> int:
        """The oldest version that Apache Kafka 4 still serves (KIP-896), from the table that tools read too."""
        floor = KAFKA_4_FLOORS.get(self.key)
        return self.min_version if floor is None else floor.version


Route: TypeAlias = Callable[[Api, Message], Handler]
"""Chooses the handler of a request: the row's own, or one that forwards the request or delays its answer."""
