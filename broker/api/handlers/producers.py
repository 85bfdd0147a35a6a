"""InitProducerId: an id and an epoch for an idempotent or transactional producer (KIP-98, KIP-360)."""

from __future__ import annotations

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ...coordinators.transactions.transaction import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerIdentity
from ..contract import RequestContext

FIRST_FENCING_VERSION = 4
"""Clients before this version know only INVALID_PRODUCER_EPOCH (KIP-588)."""


async def handle_init_producer_id(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse:
    """Return a new id for an idempotent producer, the id's next epoch for a transactional one."""
    try:
        identity = _identity(request, context)
    except BrokerError as error:
        is_too_new = error.code is ErrorCode.PRODUCER_FENCED and context.api_version < FIRST_FENCING_VERSION
        return InitProducerIdResponse(
            error_code=ErrorCode.INVALID_PRODUCER_EPOCH if is_too_new else error.code,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
        )
    return InitProducerIdResponse(producer_id=identity.producer_id, producer_epoch=identity.epoch)


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
