"""The contract of handlers: their argument `RequestContext`, and `Api`, one row of the table of APIs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from ...protocol.acls import SUPPORTED_OPERATIONS, AclOperation, AclResourceType, operation_bits
from ...protocol.apis import AnyApiKey
from ...protocol.errors import BrokerError
from ...protocol.kafka_4_floor import KAFKA_4_FLOORS
from ...protocol.messages.api_versions import ApiVersion
from ...protocol.schema import Message
from ...security.principal import KafkaPrincipal
from ..coordinators.internal_log.unreplicated_writes import InternalKey
from ..quotas.work_meter import WorkMeter
from ..server.client_connection import Address, ClientConnection, Hangup
from ..server.outcome import Outcome
from ..server.parts import Answer
from .encoded_structs import EncodedStructs
from .rights import AUTHORIZATION_ERROR, EVERYTHING, Right
from .services import Services


class RequestDispatch(Protocol):
    """A view of the dispatcher that the handler of a request may use."""

    @property
    def offered(self) -> Sequence[ApiVersion]:
        """The lowest and the highest version of each API that ApiVersions lists."""

    @property
    def plain_lane(self) -> object | None:
        """The lane for plain requests; None where other parts of the broker read each request."""

    def answer(self, frame: memoryview, client: ClientConnection) -> Outcome[Answer | None]:
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
    """Time in ms that the client must wait for a quota, as found by the handler."""
    encoded: EncodedStructs | None = None
    """Encoded entries that the handler may put into its response; None where others read or change responses."""

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
    def host(self) -> str:
        return self.client.host

    @property
    def listener_name(self) -> str:
        return self.client.listener_name

    @property
    def security_protocol(self) -> str:
        return self.client.security_protocol

    @property
    def principal(self) -> KafkaPrincipal:
        return self.client.principal

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

    # --- authorization

    @property
    def may_do_everything(self) -> bool:
        """Whether no right is checked: the broker has no authorizer, or trusts the client."""
        return self.services.authorizer is None or self.client.is_trusted

    def may(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str,
        *,
        mentions: int = 1,
        is_filter: bool = False,
        gives_access: bool = True,
    ) -> bool:
        """Return whether the client may perform an operation on a resource; without an authorizer it always may.

        The audit log shows a denial at a lower level with ``is_filter`` (the client did not name the resource, or
        another right suffices), and a permission without ``gives_access`` (KIP-430).
        """
        authorizer = self.services.authorizer
        if authorizer is None or self.client.is_trusted:
            return True
        return authorizer.is_authorized(
            self.principal,
            self.host,
            operation,
            resource_type,
            name,
            api_key=self.api.key,
            mentions=mentions,
            logs_allowed=gives_access,
            logs_denied=gives_access and not is_filter,
        )

    def authorize(self, operation: AclOperation, resource_type: AclResourceType, name: str) -> None:
        """Raise BrokerError with the code of the resource's type unless the client may perform the operation."""
        if not self.may(operation, resource_type, name):
            raise BrokerError(*AUTHORIZATION_ERROR[resource_type])

    def authorized(
        self, operation: AclOperation, resource_type: AclResourceType, names: Iterable[str], *, is_filter: bool = False
    ) -> Container[str]:
        """Return those of the resources on which the client may perform the operation; see `may`."""
        if self.may_do_everything:
            return EVERYTHING
        return {
            name
            for name, mentions in Counter(names).items()
            if self.may(operation, resource_type, name, mentions=mentions, is_filter=is_filter)
        }

    def may_with_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Return whether the client may perform the operation on some resource of a type (KIP-679)."""
        authorizer = self.services.authorizer
        if authorizer is None or self.client.is_trusted:
            return True
        return authorizer.may_do_with_any(self.principal, self.host, operation, resource_type, self.api.key)

    def authorized_operations(self, resource_type: AclResourceType, name: str) -> int:
        """Return the operations that the client may perform on a resource, as a bit set (KIP-430)."""
        return operation_bits(
            operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.may(operation, resource_type, name, gives_access=False)
        )


Handler: TypeAlias = Callable[[Any, RequestContext], Outcome[Any]]
"""Takes a typed request and returns the typed response, or None if the client expects no answer.

A handler is a plain function and runs in the task that has read the request. If the answer comes later, the handler
returns a `Pending` one. Only work that needs a task is a coroutine, which the own task of the connection awaits: plans
of conversions, checks of large compressed batches, requests to other brokers, work in turns (`turns.py`), injected
delays.
"""


def always(request: Any) -> bool:
    """Return True: the value of `Api.is_for_controller` for an API that only the controller answers."""
    return True


class CheckedRequest(NamedTuple):
    """A request for the controller of which this broker has refused parts."""

    rest: Message | None
    """A request with what is left for the controller; None if nothing is."""
    refused: Sequence[tuple[Message, BrokerError]]
    """A request with each refused part, and its refusal."""


class Api(NamedTuple):
    """A row of the table of APIs, which holds all properties of an API besides its schema."""

    key: AnyApiKey
    min_version: int
    max_version: int
    handler: Handler
    is_for_controller: Callable[[Any], bool] | None = None
    """Whether only the controller may answer a request; other nodes forward such a request to the controller."""
    checked_before_forwarding: Callable[[Any, RequestContext], CheckedRequest | None] | None = None
    """Returns the parts of a request that this broker refuses before the controller gets the rest, None if there are
    none (Kafka ``ConfigAdminManager.preprocess``)."""
    waits_for_replicas: Callable[[Any], Iterable[InternalKey]] | None = None
    """The groups and transactional ids that a request changes or reports, for an API of their coordinators. In a
    cluster of several brokers the answer waits until their state is replicated."""
    is_pipelined: bool = False
    """Whether requests of this API are handled, in their order, while earlier ones of the same connection are pending.
    Any other request waits for the answers before it, as in Kafka. The handler must not keep parts of the frame."""
    is_advertised: bool = True
    """Whether ApiVersions lists the API; telemetry is served but not listed, as in Kafka without a receiver plugin."""
    max_version_with_transactions_v2: int | None = None
    """The highest version once `transaction.version` is finalized at 2 (KIP-890), if it differs from `max_version`."""
    is_for_controller_tools: bool = False
    """Whether controllers serve the API too: Kafka's tools use the API with --bootstrap-controller."""
    changes_nothing: bool = False
    """Whether requests only read: a fault rule may refuse such a request after the handler has run."""
    rights: tuple[Right, ...] = ()
    """The rights without which the whole request is refused. The handler checks more rights, which depend on the other
    resources in a request."""
    repeats_refusals: bool = False
    """Whether the refusal of a whole request is repeated in the response's entries (Kafka `getErrorResponse`)."""
    topic_operations: tuple[AclOperation, ...] = ()
    """Operations for which the client must be authorized on each topic; other topics never reach the handler."""
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
