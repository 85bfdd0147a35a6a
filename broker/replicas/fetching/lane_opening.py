"""The opening of a lane for a busy follower's session."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TYPE_CHECKING

from ....protocol.codec import encode
from ....protocol.messages.fetch import FetchRequest
from ..partition import Partition
from .follower_lane_cy import FETCH_VERSION, FollowerLane

if TYPE_CHECKING:
    from ...monitoring.metrics import Metrics
    from ...quotas.enforcement import ClientQuotas
    from ...server.client_connection import ClientConnection
    from .purgatory import Purgatory
    from .reading import FetchLimits
    from .sessions import FetchedPartition, FetchSession

EPOCH_AT, TOPICS_AT = 17, 21
"""Places in the body of a request; the length of no topics takes one byte."""
INT16 = Struct(">h")


def new_lane(
    session: FetchSession,
    found: Sequence[tuple[FetchedPartition, object]],
    request: FetchRequest,
    limits: FetchLimits,
    client: ClientConnection,
    *,
    purgatory: Purgatory,
    quotas: ClientQuotas,
    metrics: Metrics,
) -> FollowerLane | None:
    """Return a lane for the session of a follower's request; None if it has to look at each request.

    ``found`` are the partitions of the session with what is here: a `Partition`, or an error code.
    """
    partitions = [
        (fetched, partition)
        for fetched, partition in found
        if isinstance(partition, Partition) and partition.leadership is not None
    ]
    is_usual = request.gregor_with_tag_runs and not (request.gregor_with_tags or request.gregor_as_stored)
    if len(partitions) < len(session.partitions) or not is_usual or request.min_bytes > 1 or request.isolation_level:
        return None
    empty = FetchRequest(
        replica_state=request.replica_state,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        session_id=session.session_id,
        rack_id=request.rack_id,
        gregor_with_tag_runs=True,
    )
    body = encode(empty, FETCH_VERSION)
    client_id = client.client_id_bytes or b""
    length = -1 if client.client_id is None else len(client_id)
    return FollowerLane(
        session,
        partitions,
        limits,
        client,
        max_wait_s=request.max_wait_ms / 1000,
        before_epoch=INT16.pack(length) + client_id + b"\0" + body[:EPOCH_AT],
        after_topics=body[TOPICS_AT + 1 :],
        purgatory=purgatory,
        quotas=quotas,
        metrics=metrics,
    )
