"""InitProducerId: an id and an epoch for an idempotent or transactional producer (KIP-98, KIP-360)."""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...coordinators.transactions.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from ..contract import RequestContext
from ..rights import AUTHORIZATION_ERROR

FIRST_FENCING_VERSION = 4
"""Clients before this version know only INVALID_PRODUCER_EPOCH (KIP-588)."""


def handle_init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return a new id for an idempotent producer, the id's next epoch for a transactional one."""
    try:
        _authorize(request, context)
        identity = _identity(request, context)
    except BrokerError as error:
        is_too_new = error.code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_FENCING_VERSION
        return InitProducerIdResponse(
            error_code=ErrorCode.INVALID_PRODUCER_EPOCH if is_too_new else error.code,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


def _authorize(request: InitProducerIdRequest, context: RequestContext) -> None:
    """Raise BrokerError unless the client may use the transactional id or, without one, write to a topic (KIP-679)."""
    if request.transactional_id is not None:
        context.authorize(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return
    cluster = (AclResourceType.CLUSTER, CLUSTER_NAME)
    may_be_idempotent = context.may(AclOperation.IDEMPOTENT_WRITE, *cluster, is_filter=True)
    if not may_be_idempotent and not context.may_with_any(AclOperation.WRITE, AclResourceType.TOPIC):
        raise BrokerError(*AUTHORIZATION_ERROR[AclResourceType.CLUSTER])


def _identity(request: InitProducerIdRequest, context: RequestContext) -> ProducerIdentity:
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        raise BrokerError(ErrorCode.INVALID_REQUEST)
    if request.transactional_id is None:
        return ProducerIdentity(context.services.producer_ids.next(), 0)
    expected = ProducerIdentity(request.producer_id, request.producer_epoch) if has_id else None
    return context.services.transactions.init_producer_id(
        request.transactional_id, request.transaction_timeout_ms, expected
    )
