"""The limits of a Fetch request: what its version, its sender and the quotas allow it to read."""

from __future__ import annotations

from ....protocol.messages.fetch import FetchRequest
from ...config.replication import RACK_AWARE_SELECTOR
from ...replicas.fetching.near_replicas import RackAwareSelector
from ...replicas.fetching.reading import FIRST_VERSION_FROM_FOLLOWERS, FetchLimits
from ...replicas.fetching.sessions import sender_of
from ..contract import RequestContext

READ_UNCOMMITTED, READ_COMMITTED = 0, 1


def limits_of(request: FetchRequest, context: RequestContext) -> FetchLimits:
    """Return the limits of a request, and note whether its sender is a follower."""
    services, version = context.services, context.api_version
    replica = sender_of(request, version)
    context.client.is_follower = replica.replica_id >= 0
    max_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
    # Client quotas must not slow followers down.
    if services.quotas.is_active and replica.replica_id < 0:
        max_bytes = min(max_bytes, services.quotas.most_fetch_bytes(context))
    return FetchLimits(
        version=version,
        max_bytes=max_bytes,
        read_committed=request.isolation_level == READ_COMMITTED,
        replica_id=replica.replica_id,
        replica_epoch=replica.replica_epoch,
        wants_tags=request.gregor_with_tags,
        wants_tag_runs=request.gregor_with_tag_runs and (request.gregor_as_stored or replica.replica_id >= 0),
        near_replicas=_near_replicas(request, context),
        throttle=services.leader_throttle if replica.replica_id >= 0 else None,
    )


def _near_replicas(request: FetchRequest, context: RequestContext) -> RackAwareSelector | None:
    """Return the selector of replicas in a consumer's rack; None for consumers without a rack, and for followers."""
    services = context.services
    is_selecting = services.config.replica_selector_class == RACK_AWARE_SELECTOR
    if not (request.rack_id and is_selecting and context.api_version >= FIRST_VERSION_FROM_FOLLOWERS):
        return None
    return RackAwareSelector(request.rack_id, context.listener_name, services.metadata.state.brokers)
