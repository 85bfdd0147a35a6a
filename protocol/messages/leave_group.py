"""LeaveGroup (key 13): leave a classic group at once, without waiting for the session to time out.

v3 lets several members, also static ones, be removed in one request (KIP-345); v4 is flexible; v5 adds reasons
(KIP-800).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, ErrorCodeNumber, GroupId, Int32, Message, String, Struct, Versions


class MemberIdentity(Struct):
    member_id: String = ""
    group_instance_id: String | None = None
    reason: Annotated[String | None, Versions("5+"), IGNORABLE] = None


class LeaveGroupRequest(Message, versions="0-5", flexible="4+"):
    group_id: GroupId = ""
    member_id: Annotated[String, Versions("0-2")] = ""
    members: Annotated[list[MemberIdentity], Versions("3+")] = []


class MemberResponse(Struct):
    member_id: String = ""
    group_instance_id: String | None = ""
    error_code: ErrorCodeNumber = 0


class LeaveGroupResponse(Message, versions="0-5", flexible="4+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    error_code: ErrorCodeNumber = 0
    members: Annotated[list[MemberResponse], Versions("3+")] = []
