"""DescribeGroups (key 15): state, members and assignments of classic groups.

v3 adds authorized operations (KIP-430), v4 static members (KIP-345), v5 is flexible; v6 answers an unknown group with
GROUP_ID_NOT_FOUND and a message, where before it was a group in state Dead (KIP-1043).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bool, Bytes, ErrorCodeNumber, GroupId, Int32, Message, String, Struct, Versions


class DescribeGroupsRequest(Message, versions="0-6", flexible="5+"):
    groups: list[GroupId] = []
    include_authorized_operations: Annotated[Bool, Versions("3+")] = False


class DescribedGroupMember(Struct):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions("4+"), IGNORABLE] = None
    client_id: String = ""
    client_host: String = ""
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


class DescribedGroup(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, Versions("6+")] = None
    group_id: GroupId = ""
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = []
    authorized_operations: Annotated[Int32, Versions("3+")] = -0x80000000


class DescribeGroupsResponse(Message, versions="0-6", flexible="5+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    groups: list[DescribedGroup] = []
