"""AddRaftVoter and RemoveRaftVoter (KIP-853), both refused: the metadata quorum has one fixed voter."""

from __future__ import annotations

from uuid import UUID

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ....protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ....protocol.schema import NO_UUID
from ..contract import RequestContext


def handle_add_raft_voter(request: AddRaftVoterRequest, context: RequestContext) -> AddRaftVoterResponse:
    """Refuse as Kafka does at ``kraft.version`` 0, the level that it finalizes by default."""
    error = _refusal(request.cluster_id, request.voter_directory_id, "Add", "adding", context)
    return AddRaftVoterResponse(error_code=error.code, error_message=error.message)


def handle_remove_raft_voter(request: RemoveRaftVoterRequest, context: RequestContext) -> RemoveRaftVoterResponse:
    """Refuse as Kafka does at ``kraft.version`` 0."""
    error = _refusal(request.cluster_id, request.voter_directory_id, "Remove", "removing", context)
    return RemoveRaftVoterResponse(error_code=error.code, error_message=error.message)


def _refusal(
    cluster_id: str | None, directory_id: UUID, request_name: str, doing: str, context: RequestContext
) -> BrokerError:
    known = context.services.metadata.cluster_id
    if cluster_id is not None and cluster_id != known:
        message = f'The given id "{cluster_id}" doesn\'t match the cluster id "{known}"'
        return BrokerError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
    if directory_id == NO_UUID:
        return BrokerError(ErrorCode.INVALID_REQUEST, f"{request_name} voter request didn't include a valid voter")
    message = f"Cluster doesn't support {doing} voter because the kraft.version feature is 0"
    return BrokerError(ErrorCode.UNSUPPORTED_VERSION, message)
