"""SASL requests of clients that are authenticated already, and SCRAM credentials."""

from __future__ import annotations

from ....protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ....protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ....protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ....protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ....protocol.schema import Message
from ...metadata.scram_credentials import Alteration, altered_credentials
from ..contract import RequestContext
from ..rights import AUTHORIZATION_ERROR


def handle_sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Let a client authenticate again (KIP-368); refuse where its session does not expire, or has no SASL."""
    sasl = context.client.sasl
    if sasl is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return sasl.handshake(request, context.api_version)


def handle_sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Take the next token of a client that authenticates again; refuse any other."""
    sasl = context.client.sasl
    if sasl is None:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return sasl.authenticate(request, context.api_version)


def handle_describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """List the users' SCRAM mechanisms and iterations (KIP-554), never the credentials themselves."""
    if not context.may(AclOperation.DESCRIBE, AclResourceType.CLUSTER, CLUSTER_NAME):
        code, message = AUTHORIZATION_ERROR[AclResourceType.CLUSTER]
        # Kafka repeats the error for each user, and leaves out the name.
        refused = DescribeUserScramCredentialsResult(error_code=code, error_message=message)
        results = [refused for _ in request.users or ()]
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=message, results=results)
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


def handle_alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Set and remove SCRAM credentials, independently for each user (Kafka ``ScramControlManager``).

    A user may be named once, whatever the mechanisms; of a user's errors the first one is answered.
    """
    metadata = context.services.metadata
    accepted: dict[str, Message] = {}
    refused: dict[str, BrokerError] = {}
    alterations: list[Alteration] = [*request.deletions, *request.upsertions]
    for alteration in alterations:
        name = alteration.name
        if name in refused:
            continue
        try:
            if accepted.pop(name, None) is not None:
                message = "A user credential cannot be altered twice in the same request"
                raise BrokerError(ErrorCode.DUPLICATE_RESOURCE, message)
            accepted[name] = altered_credentials(alteration, metadata.scram_credentials())
        except BrokerError as error:
            refused[name] = error
    metadata.set_scram(list(accepted.values()))
    results = [AlterUserScramCredentialsResult(user=name, error_message=None) for name in accepted]
    for name, refusal in refused.items():
        results.append(
            AlterUserScramCredentialsResult(user=name, error_code=refusal.code, error_message=refusal.message)
        )
    return AlterUserScramCredentialsResponse(results=results)
