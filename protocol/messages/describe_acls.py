"""DescribeAcls (key 29): list access rules that match a filter (KIP-140).

v1 adds prefixed patterns (KIP-290), v2 is flexible, v3 adds the resource type user (KIP-373).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import ErrorCodeNumber, Int8, Int32, Message, ResourceName, ResourceType, String, Struct, Versions


class DescribeAclsRequest(Message, versions="0-3", flexible="2+"):
    resource_type_filter: Int8 = 0
    resource_name_filter: String | None = ""
    pattern_type_filter: Annotated[Int8, Versions("1+")] = 3
    principal_filter: String | None = ""
    host_filter: String | None = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class AclDescription(Struct):
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class DescribeAclsResource(Struct):
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""
    pattern_type: Annotated[Int8, Versions("1+")] = 3
    acls: list[AclDescription] = []


class DescribeAclsResponse(Message, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    resources: list[DescribeAclsResource] = []
