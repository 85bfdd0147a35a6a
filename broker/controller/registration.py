"""Registration of brokers in the cluster (Kafka `ClusterControlManager.registerBroker`, KIP-631)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.broker_registration import BrokerRegistrationRequest
from ...protocol.messages.cluster_metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from ...protocol.schema import Message
from ..metadata.state import BrokerState, ClusterState
from .liveness import AllowsUnclean, fencing, restarting


def registering(
    state: ClusterState,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    next_epoch: int,
    is_heard_of: bool,
    unclean: AllowsUnclean,
) -> Iterator[Message]:
    """Yield records that register a broker, fenced, the last one with its epoch; a new process gets ``next_epoch``.

    Raises BrokerError INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION; DUPLICATE_BROKER_REGISTRATION if another process
    with that id has a valid session (``is_heard_of``). A process with the same log directories is the same broker, as
    it holds their locks: unlike Kafka, this controller need not wait until the session of the previous process has
    timed out.
    """
    if request.cluster_id != cluster_id:
        raise BrokerError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if not request.listeners:
        raise BrokerError(ErrorCode.INVALID_REGISTRATION, "No listeners specified in request")
    known = state.brokers.get(request.broker_id)
    epoch = next_epoch
    if known is not None and known.incarnation_id == request.incarnation_id:
        epoch = known.epoch
    elif known is not None:
        if is_heard_of and not _shares_directory(known.log_dirs, request.log_dirs):
            raise BrokerError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"Another broker is registered with that broker id {request.broker_id}",
            )
        yield from restarting(state, known.node_id, unclean)
    yield RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            BrokerEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=request.log_dirs,
    )


def _shares_directory(known: list[UUID], announced: list[UUID]) -> bool:
    return bool(set(known) & set(announced))


def unregistering(state: ClusterState, broker: BrokerState, unclean: AllowsUnclean) -> Iterator[Message]:
    """Yield the records that remove a broker from the cluster for good (KIP-500)."""
    yield from fencing(state, broker, unclean)
    yield UnregisterBrokerRecord(broker_id=broker.node_id, broker_epoch=broker.epoch)
