"""Enforcement of client quotas: the quota that applies to a client, and its throttle time (KIP-13, KIP-124, KIP-219,
KIP-599).

A client over its quota gets ``throttle_time_ms`` in the answer, and its connection is not read for that time. Fetches
over the quota are answered empty. Topic changes over ``controller_mutation_rate`` are refused in versions whose clients
know THROTTLING_QUOTA_EXCEEDED, and delayed in older ones.

The most specific quota applies, in the order of `_candidates`; all clients of a user share a quota that names only the
user (Kafka: DefaultQuotaCallback).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from ...protocol.apis import AnyApiKey, ApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.produce import ProduceRequest
from ...protocol.schema import Message
from ...storage.clock import Clock
from ..config import BrokerConfig
from ..metadata.state import Entity
from ..server.client_connection import ClientConnection
from ..server.outcome import Outcome, then
from ..server.sampled_rate import SampledRate, Window
from .client_quotas import CLIENT_ID, USER
from .rates import Rates, TokenBucket
from .work_meter import WorkMeter, metered

PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATION = "request_percentage", "controller_mutation_rate"
KINDS = (PRODUCER, CONSUMER, REQUEST, MUTATION)

NOBODY = ""
"""Stands for a part that an entity does not name; names are never empty."""
DEFAULT = None
"""Stands for users or clients without a quota of their own, as in `Entity`."""
Binding: TypeAlias = tuple[str | None, str | None]
"""User and client id of a quota, or of the clients that share one rate."""


class MeteredRequest(Protocol):
    """A view of a request's fields that quotas read and write (see `api.contract.RequestContext`)."""

    client: ClientConnection
    client_id: str | None
    work: WorkMeter | None
    throttle_ms: int

    @property
    def api_key(self) -> AnyApiKey:
        """The API of the request."""


PERCENT_PER_NS = 100 / 1_000_000_000
UNLIMITED_BYTES = (1 << 31) - 1


class Bound(NamedTuple):
    """A rate that a client shares, and its limit in units per second."""

    rate: SampledRate
    limit: float


class ClientQuotas:
    """A set of all client quotas, with their measured rates."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._clock = clock
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self._window = window
        self._limits: dict[str, dict[Binding, float]] = {kind: {} for kind in KINDS}
        self._rates = {
            kind: Rates[Binding, SampledRate](lambda: SampledRate(window)) for kind in (PRODUCER, CONSUMER, REQUEST)
        }
        self._buckets = Rates[Binding, TokenBucket](lambda: TokenBucket(mutations))
        self.is_active = False
        """Whether any quota is set; without one nothing is measured."""

    def take(self, quotas: Mapping[Entity, Mapping[str, float]]) -> None:
        """Replace all quotas by these."""
        self._limits = {kind: {} for kind in KINDS}
        for entity, values in quotas.items():
            named = dict(entity)
            binding = (named.get(USER, NOBODY), named.get(CLIENT_ID, NOBODY))
            for kind in KINDS:
                if kind in values and binding != (NOBODY, NOBODY):
                    self._limits[kind][binding] = values[kind]
        self.is_active = any(self._limits.values())

    def respond(
        self,
        respond: Callable[[], Outcome[Message | None]],
        request: Message,
        context: MeteredRequest,
        frame_bytes: int,
    ) -> Outcome[Message | None]:
        """Return the response; if a quota is exceeded, set its throttle time and mute the connection."""
        meter = context.work = WorkMeter()
        with meter:
            outcome = respond()
        if isinstance(outcome, Coroutine):
            outcome = metered(outcome, meter)
        return then(outcome, lambda response: self._enforced(response, request, context, frame_bytes))

    def _enforced(
        self, response: Message | None, request: Message, context: MeteredRequest, frame_bytes: int
    ) -> Message | None:
        throttle_ms = context.throttle_ms
        is_unanswered = False
        if isinstance(request, ProduceRequest):
            is_unanswered = request.acks == 0
            throttle_ms = max(throttle_ms, self._record(PRODUCER, context, frame_bytes))
        if context.api_key is not ApiKey.FETCH and not is_unanswered:
            throttle_ms = max(throttle_ms, self._record_work(context))
        if throttle_ms:
            context.client.throttle_ms = throttle_ms
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
        return response

    def most_fetch_bytes(self, context: MeteredRequest) -> int:
        """Return the largest size of one fetch that alone does not exceed the quota's window."""
        bound = self._bound(CONSUMER, context)
        if bound is None:
            return UNLIMITED_BYTES
        return int(bound.limit * (self._window.sample_count - 1) * self._window.sample_ms / 1000)

    def fetch_exceeds(self, context: MeteredRequest, size_bytes: int) -> bool:
        """Count a fetch of so many bytes; return whether it exceeds a quota, so that it must be answered empty.

        A fetch that exceeds the quota does not count.
        """
        request_throttle_ms = self._record_work(context)
        byte_throttle_ms = self._record(CONSUMER, context, size_bytes)
        context.throttle_ms = max(request_throttle_ms, byte_throttle_ms)
        if context.throttle_ms:
            bound = self._bound(CONSUMER, context)
            if bound is not None:
                bound.rate.record(-size_bytes, self._clock.now_ms())
        return context.throttle_ms > 0

    def record_mutations(self, context: MeteredRequest, partition_count: int, *, is_strict: bool) -> None:
        """Count partitions that a request creates or deletes.

        Raises BrokerError THROTTLING_QUOTA_EXCEEDED if the quota is exhausted and ``is_strict``.
        """
        limits = self._limits[MUTATION]
        found = _binding(limits, context)
        if found is None:
            return
        limit, now_ms = limits[found.quota], self._clock.now_ms()
        bucket = self._buckets.of(found.shared_by)
        is_refused = is_strict and bucket.throttle_ms(limit, now_ms) > 0
        if not is_refused:
            bucket.take(partition_count, limit, now_ms)
        if not is_strict or is_refused:
            context.throttle_ms = max(context.throttle_ms, bucket.throttle_ms(limit, now_ms))
        if is_refused:
            raise BrokerError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)

    def _record_work(self, context: MeteredRequest) -> int:
        work_ns = 0 if context.work is None else context.work.elapsed_ns
        return min(self._record(REQUEST, context, work_ns * PERCENT_PER_NS), self._window.sample_ms)

    def _record(self, kind: str, context: MeteredRequest, units: float) -> int:
        bound = self._bound(kind, context)
        if bound is None:
            return 0
        now_ms = self._clock.now_ms()
        bound.rate.record(units, now_ms)
        return bound.rate.throttle_ms(bound.limit, now_ms)

    def _bound(self, kind: str, context: MeteredRequest) -> Bound | None:
        limits = self._limits[kind]
        found = _binding(limits, context)
        return None if found is None else Bound(self._rates[kind].of(found.shared_by), limits[found.quota])


class Found(NamedTuple):
    """A quota that applies to a client, and the clients that share its rate."""

    quota: Binding
    shared_by: Binding


def _binding(limits: Mapping[Binding, float], context: MeteredRequest) -> Found | None:
    if not limits:
        return None
    return next(
        (found for found in _candidates(context.client, context.client_id or "") if found.quota in limits), None
    )


def _candidates(client: ClientConnection, client_id: str) -> Iterator[Found]:
    """Yield the entities whose quotas may apply to a client, the most specific first."""
    user = client.principal.name
    both, user_alone, client_alone = (user, client_id), (user, NOBODY), (NOBODY, client_id)
    yield Found((user, client_id), both)
    yield Found((user, DEFAULT), both)
    yield Found((user, NOBODY), user_alone)
    yield Found((DEFAULT, client_id), both)
    yield Found((DEFAULT, DEFAULT), both)
    yield Found((DEFAULT, NOBODY), user_alone)
    yield Found((NOBODY, client_id), client_alone)
    yield Found((NOBODY, DEFAULT), client_alone)
