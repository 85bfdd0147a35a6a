"""CreateAcls (key 30): add access rules (KIP-140).

v1 adds prefixed patterns (KIP-290), v2 is flexible, v3 adds the resource type user (KIP-373).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import ErrorCodeNumber, Int8, Int32, Message, ResourceName, ResourceType, String, Struct, Versions


class AclCreation(Struct):
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""
    resource_pattern_type: Annotated[Int8, Versions("1+")] = 3
    principal: String = ""
    host: String = ""
    operation: Int8 = 0
    permission_type: Int8 = 0


class CreateAclsRequest(Message, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = []


class AclCreationResult(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""


class CreateAclsResponse(Message, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[AclCreationResult] = []
