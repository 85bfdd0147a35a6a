"""The cluster as a whole: brokers, versions, features, the quorum of controllers, and the clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ...protocol.apis import ApiKey
from ...protocol.messages import add_raft_voter
from ...protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.describe_clients import DescribeClientsRequest, DescribeClientsResponse
from ...protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ...protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    PartitionDataResponse,
    TopicData,
)
from ...protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ...protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ...protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from ...protocol.spoken_versions import SOFTWARE_NAME
from .base import AdminBase, raise_for

CLUSTER_METADATA = "__cluster_metadata"


class FeatureRange(NamedTuple):
    """The versions of a feature: the range that the brokers support, and the finalized version (0: none)."""

    min_version: int
    max_version: int
    finalized: int


class UpgradeType(IntEnum):
    """The direction in which a feature may change its version (KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(slots=True)
class ClusterDescription:
    """The cluster's id, its controller, and host and port of each broker by node id."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, tuple[str, int]]


class ClusterAdmin(AdminBase):
    """The methods of the admin client for the cluster."""

    async def describe_cluster(self) -> ClusterDescription:
        """Return the cluster id, the controller and the brokers."""
        if await self.speaks(ApiKey.DESCRIBE_CLUSTER):
            answer = await self.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
            raise_for(answer.error_code, answer.error_message)
            brokers = {broker.broker_id: (broker.host, broker.port) for broker in answer.brokers}
            return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)
        await self._refresh_brokers()
        return ClusterDescription(self._cluster.cluster_id, self._cluster.controller_id, self._cluster.brokers)

    async def describe_clients(self) -> list[DescribeClientsResponse]:
        """Return the clients of each broker and their requests.

        Only Gregor brokers answer; any other Kafka closes the connection: ConnectionLostError.
        """
        await self._refresh_brokers()
        request = DescribeClientsRequest()
        return [
            await self.ask_once(node, request, DescribeClientsResponse, version=0) for node in self._cluster.brokers
        ]

    async def api_versions(self) -> dict[ApiKey, int]:
        """Return the version of each API that this client uses with a broker of the cluster."""
        versions = (await self._cluster.any_connection()).versions
        return {key: versions.version(key) for key in ApiKey if key in versions}

    # --- features ---

    async def describe_features(self) -> dict[str, FeatureRange]:
        """Return the cluster's features (KIP-584): metadata.version, transaction.version and the like."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version="1")
        answer = await self.ask_any(request, ApiVersionsResponse)
        raise_for(answer.error_code, "ApiVersions")
        finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return {
            feature.name: FeatureRange(feature.min_version, feature.max_version, finalized.get(feature.name, 0))
            for feature in answer.supported_features
        }

    async def update_features(
        self,
        updates: dict[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> None:
        """Finalize features at these versions; 0 removes a feature."""
        request = UpdateFeaturesRequest(
            timeout_ms=self.config.request_timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=version, upgrade_type=upgrade_type)
                for name, version in updates.items()
            ],
            validate_only=validate_only,
        )
        answer = await self.ask_controller(request, UpdateFeaturesResponse)
        raise_for(answer.error_code, answer.error_message)
        for result in answer.results:
            raise_for(result.error_code, result.error_message or result.feature)

    # --- brokers and voters ---

    async def unregister_broker(self, node_id: int) -> None:
        """Unregister a broker that was removed permanently."""
        answer = await self.ask_controller(UnregisterBrokerRequest(broker_id=node_id), UnregisterBrokerResponse)
        raise_for(answer.error_code, answer.error_message)

    async def describe_quorum(self) -> PartitionDataResponse:
        """Return leader, voters and observers of the metadata log (KIP-595), with the log end offset of each."""
        wanted = TopicData(topic_name=CLUSTER_METADATA, partitions=[PartitionData(partition_index=0)])
        answer = await self.ask_any(DescribeQuorumRequest(topics=[wanted]), DescribeQuorumResponse)
        raise_for(answer.error_code, answer.error_message)
        described = answer.topics[0].partitions[0]
        raise_for(described.error_code, described.error_message)
        return described

    async def add_raft_voter(
        self, voter_id: int, directory_id: UUID, listeners: Sequence[tuple[str, str, int]]
    ) -> None:
        """Add a controller to the voters (KIP-853); it listens at these (listener name, host, port)."""
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self.config.request_timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[add_raft_voter.Listener(name=name, host=host, port=port) for name, host, port in listeners],
        )
        answer = await self.ask_controller(request, AddRaftVoterResponse)
        raise_for(answer.error_code, answer.error_message)

    async def remove_raft_voter(self, voter_id: int, directory_id: UUID) -> None:
        """Remove a controller from the voters (KIP-853)."""
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
        answer = await self.ask_controller(request, RemoveRaftVoterResponse)
        raise_for(answer.error_code, answer.error_message)
