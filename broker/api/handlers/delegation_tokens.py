"""Delegation tokens (KIP-48): create, renew, expire, describe, for clients that authenticated by something else."""

from __future__ import annotations

from collections.abc import Callable

from ....protocol.acls import AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.cluster_metadata_records import DelegationTokenRecord
from ....protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ....protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ....protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ....protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ....security.principal import ANONYMOUS, KafkaPrincipal
from ...authentication.delegation_tokens import belongs_to
from ..contract import RequestContext


def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for another owner if the client may (KIP-373)."""
    requester = context.principal
    owner = requester
    if request.owner_principal_name:
        owner = KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.principal_type,
        principal_name=owner.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type = requester.principal_type
        response.token_requester_principal_name = requester.name
    try:
        _check_allowed(context)
        if owner != requester and not context.may(AclOperation.CREATE_TOKENS, AclResourceType.USER, str(owner)):
            raise BrokerError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = [KafkaPrincipal(renewer.principal_type, renewer.principal_name) for renewer in request.renewers]
        tokens = context.services.delegation_tokens
        token = tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except BrokerError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms = token.issue_timestamp
    response.expiry_timestamp_ms = token.expiration_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.token_id = token.token_id
    response.hmac = tokens.hmac_of(token.token_id)
    return response


def handle_renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Renew a token of the client."""
    change = context.services.delegation_tokens.renew
    code, expiry_ms = _change_expiry(change, bytes(request.hmac), request.renew_period_ms, context)
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)


def handle_expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Let a token of the client expire sooner, or at once."""
    change = context.services.delegation_tokens.expire
    code, expiry_ms = _change_expiry(change, bytes(request.hmac), request.expiry_time_period_ms, context)
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expiry_ms)


def _change_expiry(
    change: Callable[[bytes, KafkaPrincipal, int], int], hmac: bytes, period_ms: int, context: RequestContext
) -> tuple[ErrorCode, int]:
    """Change when a token of the client expires; return the error code, and the new time in ms since 1970 or -1."""
    try:
        _check_allowed(context)
        return ErrorCode.NONE, change(hmac, context.principal, period_ms)
    except BrokerError as error:
        return error.code, -1


def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """List the tokens that the client may see, of some owners or of all."""
    try:
        _check_allowed(context)
        tokens = context.services.delegation_tokens.all()
    except BrokerError as error:
        return DescribeDelegationTokenResponse(error_code=error.code)
    owners = None
    if request.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in request.owners}
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, context)
            for token in tokens
            if (owners is None or token.owner in owners) and _is_visible(token, context)
        ]
    )


def _is_visible(token: DelegationTokenRecord, context: RequestContext) -> bool:
    return (
        belongs_to(token, context.principal)
        or context.may(AclOperation.DESCRIBE, AclResourceType.DELEGATION_TOKEN, token.token_id, is_filter=True)
        or context.may(AclOperation.DESCRIBE_TOKENS, AclResourceType.USER, token.owner, is_filter=True)
    )


def _described(token: DelegationTokenRecord, context: RequestContext) -> DescribedDelegationToken:
    owner, requester = KafkaPrincipal.parse(token.owner), KafkaPrincipal.parse(token.requester)
    described = DescribedDelegationToken(
        principal_type=owner.principal_type,
        principal_name=owner.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=context.services.delegation_tokens.hmac_of(token.token_id),
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.principal_type, principal_name=renewer.name)
            for renewer in map(KafkaPrincipal.parse, token.renewers)
        ],
    )
    if context.api_version >= 3:
        described.token_requester_principal_type = requester.principal_type
        described.token_requester_principal_name = requester.name
    return described


def _check_allowed(context: RequestContext) -> None:
    """Raise BrokerError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (Kafka ``KafkaApis.allowTokenRequests``).

    A client that another broker forwards is authenticated if it has a name: the envelope does not have its listener.
    """
    is_plain = context.security_protocol == "PLAINTEXT" and not context.is_forwarded
    if is_plain or context.principal == ANONYMOUS or context.principal.token_authenticated:
        raise BrokerError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
