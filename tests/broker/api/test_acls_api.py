"""DescribeAcls, CreateAcls and DeleteAcls of a broker with an authorizer."""

from __future__ import annotations

from typing import Any

import pytest

from gregor.broker.api.handlers.acls import handle_create_acls, handle_delete_acls, handle_describe_acls
from gregor.protocol.errors import DecodeError, ErrorCode
from gregor.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from gregor.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from gregor.protocol.messages.describe_acls import DescribeAclsRequest
from tests.asking import Asking

pytestmark = pytest.mark.parametrize(
    "properties",
    [{"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS"}],
)
TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, ALL, ALLOW = 3, 2, 3


def creation(name: Any = "orders", **fields: Any) -> AclCreation:
    values = {"resource_type": TOPIC, "resource_pattern_type": LITERAL, "operation": READ, "permission_type": ALLOW}
    return AclCreation(**{**values, "resource_name": name, "principal": "User:al", "host": "*", **fields})


async def create(asking: Asking, *creations: AclCreation) -> list[tuple[int, str | None]]:
    response = await asking.ask(handle_create_acls, CreateAclsRequest(creations=list(creations)))
    return [(result.error_code, result.error_message) for result in response.results]


async def described(asking: Asking, version: int = 3, **fields: Any) -> list[tuple[str, int, int]]:
    """Return the name, pattern type and number of ACLs of each resource that a filter finds."""
    values = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    nobody = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    request = DescribeAclsRequest(**{**values, **nobody, **fields})
    response = await asking.ask(handle_describe_acls, request, version)
    return [(resource.resource_name, resource.pattern_type, len(resource.acls)) for resource in response.resources]


async def test_an_acl_is_created_once(asking: Asking) -> None:
    wanted = [creation(), creation(), creation(operation=ALL)]
    assert await create(asking, *wanted) == [(0, None)] * 3
    assert await create(asking, creation()) == [(0, None)]
    assert await described(asking) == [("orders", LITERAL, 2)]
    assert len(asking.broker.services.metadata.state.acls) == 2


@pytest.mark.parametrize(
    ("refused", "message"),
    [
        (creation(resource_type=CLUSTER), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (creation(""), "Invalid empty resource name"),
        (creation(resource_type=99), "Invalid resourceType UNKNOWN"),
        (creation(resource_type=ANY), "Invalid resourceType ANY"),
        (creation(resource_pattern_type=MATCH), "Invalid patternType MATCH"),
        (creation(operation=ANY), "Invalid operation ANY"),
        (creation(operation=77), "Invalid operation UNKNOWN"),
        (creation(permission_type=ANY), "Invalid permissionType ANY"),
        (
            creation(principal="al"),
            (
                "Could not parse principal from `al` (no colon is present separating the principal type from the "
                "principal name)"
            ),
        ),
    ],
)
async def test_invalid_acls_are_refused_one_by_one(asking: Asking, refused: AclCreation, message: str) -> None:
    assert await create(asking, refused, creation()) == [(ErrorCode.INVALID_REQUEST, message), (0, None)]
    assert await described(asking) == [("orders", LITERAL, 1)]


@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
async def test_an_acl_field_with_the_code_of_unknown_is_a_decode_error(asking: Asking, field: str) -> None:
    with pytest.raises(DecodeError):
        await create(asking, creation(), creation(**{field: 0}))
    assert await described(asking) == []


@pytest.mark.parametrize(
    ("version", "fields", "found"),
    [
        (3, {}, {"orders", "*", "ord"}),
        (3, {"resource_type_filter": GROUP}, set()),
        (3, {"resource_name_filter": "orders"}, {"orders"}),
        (3, {"resource_name_filter": "orders", "pattern_type_filter": MATCH}, {"orders", "*", "ord"}),
        (3, {"resource_name_filter": "other", "pattern_type_filter": MATCH}, {"*"}),
        (3, {"resource_name_filter": "ord", "pattern_type_filter": PREFIXED}, {"ord"}),
        (3, {"resource_name_filter": "ord", "pattern_type_filter": LITERAL}, set()),
        (3, {"principal_filter": "User:bo"}, {"*"}),
        (3, {"host_filter": "192.0.2.7"}, {"orders"}),
        (3, {"operation": ALL}, {"ord"}),
        (3, {"permission_type": 2}, {"*"}),
        (3, {"permission_type": 9}, set()),
        (0, {"pattern_type_filter": ANY}, {"orders", "*"}),
    ],
)
async def test_describe_acls_returns_the_acls_that_match_the_filter(
    asking: Asking, version: int, fields: dict[str, Any], found: set[str]
) -> None:
    await create(
        asking,
        creation(host="192.0.2.7"),
        creation("*", principal="User:bo", permission_type=2),
        creation("ord", resource_pattern_type=PREFIXED, operation=ALL),
    )
    assert {name for name, _, _ in await described(asking, version, **fields)} == found


async def test_delete_acls_returns_the_matching_acls_of_each_filter(asking: Asking) -> None:
    await create(asking, creation("a"), creation("b"), creation("c"))

    def selecting(**fields: Any) -> DeleteAclsFilter:
        values = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
        nobody = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
        return DeleteAclsFilter(**{**values, **nobody, **fields})

    filters = [
        selecting(resource_name_filter="a"),
        selecting(resource_type_filter=99),
        selecting(operation=99),
        selecting(resource_name_filter="a", principal_filter="User:al"),
        selecting(resource_name_filter="b"),
        selecting(resource_name_filter="none"),
    ]
    response = await asking.ask(handle_delete_acls, DeleteAclsRequest(filters=filters))
    assert [
        (result.error_code, result.error_message, [acl.resource_name for acl in result.matching_acls])
        for result in response.filter_results
    ] == [
        (0, None, ["a"]),
        (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.", []),
        (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.", []),
        (0, None, ["a"]),
        (0, None, ["b"]),
        (0, None, []),
    ]
    assert await described(asking) == [("c", LITERAL, 1)]
