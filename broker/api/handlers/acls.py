"""DescribeAcls, CreateAcls and DeleteAcls (KIP-140)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from ....protocol.acls import AclOperation, AclPermission, AclResourceType, PatternType
from ....protocol.errors import BrokerError, DecodeError, ErrorCode
from ....protocol.messages.cluster_metadata_records import RemoveAccessControlEntryRecord
from ....protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ....protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ....protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ...authorization.acl import Acl
from ...authorization.acl_changes import AclFilter, check_new, new_record
from ...metadata.new_topics import MOST_RECORDS_OF_A_REQUEST, TOO_LARGE_A_BATCH
from ..contract import RequestContext
from ..turns import in_turns

NO_AUTHORIZER = "No Authorizer is configured."
NO_AUTHORIZER_ON_THE_BROKER = "No Authorizer is configured on the broker"


def handle_describe_acls(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    """List the ACLs that a filter selects, by resource pattern."""
    authorizer = context.services.authorizer
    if authorizer is None:
        raise BrokerError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER_ON_THE_BROKER)
    wanted = _filter(request, context.api_version)
    by_pattern: dict[tuple[AclResourceType, str, PatternType], list[AclDescription]] = {}
    for acl in authorizer.acls.values():
        if wanted.matches(acl):
            pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
            by_pattern.setdefault(pattern, []).append(
                AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
            )
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern_type, acls=acls)
            for (kind, name, pattern_type), acls in by_pattern.items()
        ],
    )


def handle_create_acls(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    """Add ACLs, independently of each other; an ACL that exists already is a success."""
    authorizer = context.services.authorizer
    if authorizer is None:
        refused = AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return CreateAclsResponse(results=[refused for _ in request.creations])
    wanted = [_new_acl(creation) for creation in request.creations]
    results = []
    new: dict[Acl, None] = {}
    for acl in wanted:
        result = AclCreationResult(error_message=None)
        try:
            check_new(acl)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            if not authorizer.holds(acl):
                new[acl] = None
        results.append(result)
    if len(new) > MOST_RECORDS_OF_A_REQUEST:
        refused = AclCreationResult(error_code=ErrorCode.POLICY_VIOLATION, error_message=TOO_LARGE_A_BATCH)
        return CreateAclsResponse(results=[refused for _ in wanted])
    context.services.metadata.change_acls([new_record(acl) for acl in new])
    return CreateAclsResponse(results=results)


async def handle_delete_acls(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    """Remove the ACLs that filters select, independently for each filter, and return them."""
    authorizer = context.services.authorizer
    if authorizer is None:
        refused = DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[refused for _ in request.filters])
    filters = [_filter(wanted, context.api_version) for wanted in request.filters]
    present = dict(authorizer.acls)
    selected: dict[UUID, None] = {}
    results = []
    async for wanted in in_turns(filters):
        result = DeleteAclsFilterResult(error_message=None)
        try:
            result.matching_acls = _take(wanted, present.items(), selected)
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    # Another request may have removed some of the ACLs in between.
    removed = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in selected if acl_id in authorizer.acls]
    context.services.metadata.change_acls(removed)
    return DeleteAclsResponse(filter_results=results)


def _take(
    wanted: AclFilter, present: Iterable[tuple[UUID, Acl]], selected: dict[UUID, None]
) -> list[DeleteAclsMatchingAcl]:
    """Add the ids of the ACLs that a filter selects to ``selected``; return the ACLs. Raises BrokerError."""
    wanted.check()
    found = {acl_id: acl for acl_id, acl in present if wanted.matches(acl)}
    if len(selected.keys() | found.keys()) > MOST_RECORDS_OF_A_REQUEST:
        message = f"Cannot remove more than {MOST_RECORDS_OF_A_REQUEST} acls in a single delete operation."
        raise BrokerError(ErrorCode.POLICY_VIOLATION, message)
    selected.update(dict.fromkeys(found))
    return [
        DeleteAclsMatchingAcl(
            error_message=None,
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in found.values()
    ]


def _new_acl(creation: AclCreation) -> Acl:
    _check_codes(creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type)
    return Acl(
        AclResourceType(creation.resource_type),
        creation.resource_name,
        PatternType(creation.resource_pattern_type),
        creation.principal,
        creation.host,
        AclOperation(creation.operation),
        AclPermission(creation.permission_type),
    )


def _filter(request: DescribeAclsRequest | DeleteAclsFilter, version: int) -> AclFilter:
    _check_codes(request.resource_type_filter, request.pattern_type_filter, request.operation, request.permission_type)
    return AclFilter(
        AclResourceType(request.resource_type_filter),
        request.resource_name_filter,
        PatternType.LITERAL if version == 0 else PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        AclPermission(request.permission_type),
    )


def _check_codes(*codes: int) -> None:
    """Raise DecodeError, which closes the connection, for code 0: Kafka's request classes refuse it (UNKNOWN)."""
    if 0 in codes:
        raise DecodeError("a request about ACLs has the code of UNKNOWN")
