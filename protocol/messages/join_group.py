"""JoinGroup (key 11): become a member of a classic group, or stay one through a rebalance.

The response waits until all members have joined; the one whose id is `leader` gets everybody's metadata in `members`
and computes the assignment, which SyncGroup then spreads.

- v1 has a rebalance timeout besides the session timeout (before, one served for both; KIP-62).
- v4 refuses the first join with MEMBER_ID_REQUIRED and hands out the id to come back with (KIP-394).
- v5 adds static members (KIP-345); v6 is flexible; v7 echoes the protocol type; v8 adds a reason (KIP-800).
- v9 can tell the leader to skip the assignment (KIP-814).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    Bytes,
    ErrorCodeNumber,
    GroupId,
    Int32,
    Message,
    Nullable,
    String,
    Struct,
    Versions,
)


class JoinGroupRequestProtocol(Struct):
    name: String = ""
    metadata: Bytes = b""


class JoinGroupRequest(Message, versions="0-9", flexible="6+"):
    group_id: GroupId = ""
    session_timeout_ms: Int32 = 0
    rebalance_timeout_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = -1
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions("5+")] = None
    protocol_type: String = ""
    protocols: list[JoinGroupRequestProtocol] = []
    reason: Annotated[String | None, Versions("8+"), IGNORABLE] = None


class JoinGroupResponseMember(Struct):
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions("5+"), IGNORABLE] = None
    metadata: Bytes = b""


class JoinGroupResponse(Message, versions="0-9", flexible="6+"):
    throttle_time_ms: Annotated[Int32, Versions("2+"), IGNORABLE] = 0
    error_code: ErrorCodeNumber = 0
    generation_id: Int32 = -1
    protocol_type: Annotated[String | None, Versions("7+"), IGNORABLE] = None
    protocol_name: Annotated[String | None, Nullable("7+")] = ""
    leader: String = ""
    skip_assignment: Annotated[Bool, Versions("9+")] = False
    member_id: String = ""
    members: list[JoinGroupResponseMember] = []
