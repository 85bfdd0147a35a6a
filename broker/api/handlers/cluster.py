"""DescribeCluster, DescribeQuorum, UpdateFeatures and UnregisterBroker."""

from __future__ import annotations

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.internal_topics import CLUSTER_METADATA
from ....protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ....protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataResponse,
    ReplicaState,
    TopicDataResponse,
)
from ....protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ....protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from ...metadata.features import FeatureUpdate, UpgradeType, validate_update
from ...server.advertised import advertised_address
from ..advertised import visible_brokers
from ..authorized_operations import cluster_operations
from ..contract import RequestContext

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of a DescribeCluster request (KIP-919)."""


def handle_describe_cluster(request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the brokers and the controller.

    Endpoints of type CONTROLLER are described on the controller's listener only: see `node/controller_apis.py`.
    """
    if request.endpoint_type == CONTROLLERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="The request was sent to an endpoint of type BROKER, "
            "but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    metadata = context.services.metadata
    visible = visible_brokers(context)
    return DescribeClusterResponse(
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id_for_clients,
        brokers=[
            DescribeClusterBroker(broker_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
            for broker in visible
        ],
        cluster_authorized_operations=cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
    )


def handle_describe_quorum(request: DescribeQuorumRequest, context: RequestContext) -> DescribeQuorumResponse:
    """Describe the quorum of the metadata log (KIP-595): this node is the only voter, brokers are observers."""
    host, port = advertised_address(context.services.config, context.client)
    topics = [
        TopicDataResponse(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(context)
                if (topic.topic_name, partition.partition_index) == (CLUSTER_METADATA, 0)
                else PartitionDataResponse(
                    partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    nodes = []
    is_answered = any(not partition.error_code for topic in topics for partition in topic.partitions)
    if context.api_version >= 2 and is_answered:
        own = context.services.config.roles.controller_listener
        if own is not None:
            host, port = own.host or host, own.port
        listener = Listener(name=own.name if own else context.listener_name, host=host, port=port)
        nodes = [Node(node_id=context.services.metadata.node_id, listeners=[listener])]
    return DescribeQuorumResponse(topics=topics, nodes=nodes)


def _quorum(context: RequestContext) -> PartitionDataResponse:
    metadata = context.services.metadata
    now_ms = context.services.clock.now_ms()
    voter = ReplicaState(
        replica_id=metadata.node_id,
        log_end_offset=metadata.end_offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return PartitionDataResponse(
        leader_id=metadata.node_id,
        leader_epoch=metadata.epoch,
        high_watermark=metadata.end_offset,
        current_voters=[voter],
        observers=context.services.node.observers(now_ms),
    )


def handle_update_features(request: UpdateFeaturesRequest, context: RequestContext) -> UpdateFeaturesResponse:
    """Finalize new levels of all features whose update is valid (KIP-584)."""
    results: list[UpdatableFeatureResult] = []
    levels: dict[str, int] = {}
    for wanted in request.feature_updates:
        result = UpdatableFeatureResult(feature=wanted.feature, error_message=None)
        try:
            update = _update(wanted, context.api_version)
            validate_update(update, context.services.metadata.state.features, context.services.metadata.node_id)
            levels[update.feature] = update.level
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    if not request.validate_only:
        context.services.metadata.set_features(levels)
    return UpdateFeaturesResponse(results=results)


def _update(wanted: FeatureUpdateKey, version: int) -> FeatureUpdate:
    if version == 0:
        kind = UpgradeType.SAFE_DOWNGRADE if wanted.allow_downgrade else UpgradeType.UPGRADE
    elif wanted.upgrade_type in set(UpgradeType):
        kind = UpgradeType(wanted.upgrade_type)
    else:
        kind = UpgradeType.UNKNOWN
    return FeatureUpdate(wanted.feature, wanted.max_version_level, kind)


def handle_unregister_broker(request: UnregisterBrokerRequest, context: RequestContext) -> UnregisterBrokerResponse:
    """Remove a broker from the cluster for good."""
    context.services.node.unregister(request.broker_id)
    return UnregisterBrokerResponse(error_message=None)
