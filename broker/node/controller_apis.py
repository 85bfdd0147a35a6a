"""The APIs of the controller's listener, and the handlers of those APIs that no other listener serves."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.acls import AclOperation
from ...protocol.apis import ApiKey, ControllerApiKey
from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ...protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ...protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ...protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ...protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse
from ...protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ..api.authorized_operations import cluster_operations
from ..api.contract import Api, RequestContext
from ..api.handlers.api_versions import handle_api_versions
from ..api.handlers.cluster import CONTROLLERS
from ..api.rights import on_cluster
from ..api.table import APIS
from ..metadata.producer_ids import BLOCK_SIZE
from .forwarding import open_envelope
from .metadata_fetch import handle_fetch_metadata, handle_fetch_snapshot


def handle_broker_registration(
    request: BrokerRegistrationRequest, context: RequestContext
) -> BrokerRegistrationResponse:
    """Register a broker, fenced at first."""
    is_here = context.services.metadata.node_id == request.broker_id
    return BrokerRegistrationResponse(
        broker_epoch=context.services.node.controller_here.register(request, is_here=is_here)
    )


def handle_broker_heartbeat(request: BrokerHeartbeatRequest, context: RequestContext) -> BrokerHeartbeatResponse:
    """Record a broker's heartbeat, and answer with its state."""
    return context.services.node.controller_here.heartbeat(request)


def handle_assign_replicas_to_dirs(
    request: AssignReplicasToDirsRequest, context: RequestContext
) -> AssignReplicasToDirsResponse:
    """Record which log directories a broker's replicas are in."""
    return context.services.node.controller_here.assign_directories(request)


def handle_alter_partition(request: AlterPartitionRequest, context: RequestContext) -> AlterPartitionResponse:
    """Set the in-sync replicas of partitions as their leader requests."""
    return context.services.node.controller_here.alter_partitions(request, context.api_version)


def handle_allocate_producer_ids(
    request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    """Allocate a block of producer ids to a broker (KIP-730)."""
    context.services.node.controller_here.registered(request.broker_id, request.broker_epoch)
    first = context.services.metadata.allocate_producer_ids(BLOCK_SIZE)
    return AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE)


def handle_describe_controllers(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the controller of the cluster (KIP-919)."""
    if request.endpoint_type != CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type CONTROLLER, "
            "but we wanted an endpoint of type BROKER",
        )
    metadata = context.services.metadata
    host, port = context.local_address
    return DescribeClusterResponse(
        endpoint_type=CONTROLLERS,
        cluster_authorized_operations=cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
        cluster_id=metadata.cluster_id,
        controller_id=metadata.node_id,
        brokers=[DescribeClusterBroker(broker_id=metadata.node_id, host=host, port=port)],
    )


async def handle_envelope(request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    """Answer a client's request that a broker has forwarded (KIP-590)."""
    if context.is_forwarded:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    return await open_envelope(request, context)


BROKERS_ALONE = (on_cluster(AclOperation.CLUSTER_ACTION),)
"""The rights to what brokers ask of the controller."""

CONTROLLER_APIS: Mapping[int, Api] = {
    key: api for key, api in APIS.items() if api.is_for_controller is not None or api.is_for_controller_tools
} | {
    api.key: api
    for api in (
        APIS[ApiKey.SASL_HANDSHAKE],
        APIS[ApiKey.SASL_AUTHENTICATE],
        Api(ApiKey.FETCH, 12, 17, handle_fetch_metadata, changes_nothing=True, rights=BROKERS_ALONE),
        Api(ApiKey.API_VERSIONS, 0, 4, handle_api_versions, changes_nothing=True),
        Api(ApiKey.ALTER_PARTITION, 0, 3, handle_alter_partition, rights=BROKERS_ALONE),
        Api(ApiKey.ENVELOPE, 0, 0, handle_envelope, rights=BROKERS_ALONE),
        Api(ControllerApiKey.FETCH_SNAPSHOT, 0, 1, handle_fetch_snapshot, rights=BROKERS_ALONE),
        Api(
            ApiKey.DESCRIBE_CLUSTER,
            0,
            1,
            handle_describe_controllers,
            changes_nothing=True,
            rights=(on_cluster(AclOperation.ALTER, AclOperation.CLUSTER_ACTION),),
        ),
        Api(ControllerApiKey.BROKER_REGISTRATION, 0, 4, handle_broker_registration, rights=BROKERS_ALONE),
        Api(ControllerApiKey.BROKER_HEARTBEAT, 0, 1, handle_broker_heartbeat, rights=BROKERS_ALONE),
        Api(ControllerApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, 0, handle_assign_replicas_to_dirs, rights=BROKERS_ALONE),
        Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, handle_allocate_producer_ids, rights=BROKERS_ALONE),
    )
}
