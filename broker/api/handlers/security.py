"""Access control lists, delegation tokens and SASL, answered as by Kafka without an authorizer; SCRAM credentials."""

from __future__ import annotations

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ....protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ....protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ....protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from ....protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ....protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ....protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ....protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from ....protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from ....protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ....protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ...metadata.scram_credentials import Alteration, altered_credentials
from ..contract import RequestContext

NO_AUTHORIZER = "No Authorizer is configured."
NOBODY = ("User", "ANONYMOUS")
"""The principal of every client of a PLAINTEXT listener."""


async def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """Refuse with SECURITY_DISABLED: there is no authorizer that could hold ACLs."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )


async def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Refuse with SECURITY_DISABLED: there is no authorizer that could hold ACLs."""
    refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return CreateAclsResponse(results=[refused for _ in request.creations])


async def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Refuse with SECURITY_DISABLED: there is no authorizer that could hold ACLs."""
    refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    return DeleteAclsResponse(filter_results=[refused for _ in request.filters])


async def handle_create_delegation_token(
    request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Refuse: tokens are for authenticated clients (KIP-48), and a PLAINTEXT listener has none."""
    kind, name = NOBODY
    response = CreateDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        principal_type=kind,
        principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if context.api_version >= 3:
        response.token_requester_principal_type, response.token_requester_principal_name = NOBODY
    return response


async def handle_renew_delegation_token(
    request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Refuse, as `handle_create_delegation_token` does."""
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )


async def handle_expire_delegation_token(
    request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Refuse, as `handle_create_delegation_token` does."""
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1
    )


async def handle_describe_delegation_token(
    request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """Refuse, as `handle_create_delegation_token` does."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


async def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuse: a PLAINTEXT listener has no authentication."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


async def handle_sasl_authenticate(
    request: SaslAuthenticateRequest, context: RequestContext
) -> SaslAuthenticateResponse:
    """Refuse: a PLAINTEXT listener has no authentication."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


async def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """List the users' SCRAM mechanisms and iterations (KIP-554), never the credentials themselves."""
    held: dict[str, list[CredentialInfo]] = {}
    for (user, mechanism), credential in context.services.metadata.scram_credentials().items():
        held.setdefault(user, []).append(CredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    if not request.users:
        return DescribeUserScramCredentialsResponse(
            results=[DescribeUserScramCredentialsResult(user=name, credential_infos=held[name]) for name in held]
        )
    names = [user.name for user in request.users]
    return DescribeUserScramCredentialsResponse(
        results=[_described_user(name, names.count(name), held) for name in dict.fromkeys(names)]
    )


def _described_user(
    name: str, mentions: int, held: dict[str, list[CredentialInfo]]
) -> DescribeUserScramCredentialsResult:
    result = DescribeUserScramCredentialsResult(user=name)
    if mentions > 1:
        result.error_code = ErrorCode.DUPLICATE_RESOURCE
        result.error_message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif name not in held:
        result.error_code = ErrorCode.RESOURCE_NOT_FOUND
        result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
    else:
        result.credential_infos = held[name]
    return result


async def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Set and remove SCRAM credentials, independently for each user."""
    metadata = context.services.metadata
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    names = [alteration.name for alteration in alterations]
    results: dict[str, AlterUserScramCredentialsResult] = {}
    for alteration in alterations:
        result = AlterUserScramCredentialsResult(user=alteration.name, error_message=None)
        try:
            if names.count(alteration.name) > 1:
                message = "A user credential cannot be altered twice in the same request"
                raise BrokerError(ErrorCode.DUPLICATE_RESOURCE, message)
            metadata.set_scram([altered_credentials(alteration, metadata.scram_credentials())])
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message
        results[alteration.name] = result
    return AlterUserScramCredentialsResponse(results=list(results.values()))
