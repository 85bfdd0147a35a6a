"""SyncGroup (key 14): the leader of a classic group hands in the assignment, every member waits for its own.

v3 adds static members (KIP-345), v4 is flexible, v5 checks the protocol's type and name (KIP-559).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bytes, ErrorCodeNumber, GroupId, Int32, Message, String, Struct, Versions


class SyncGroupRequestAssignment(Struct):
    member_id: String = ""
    assignment: Bytes = b""


class SyncGroupRequest(Message, versions="0-5", flexible="4+"):
    group_id: GroupId = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions("3+")] = None
    protocol_type: Annotated[String | None, Versions("5+"), IGNORABLE] = None
    protocol_name: Annotated[String | None, Versions("5+"), IGNORABLE] = None
    assignments: list[SyncGroupRequestAssignment] = []


class SyncGroupResponse(Message, versions="0-5", flexible="4+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    error_code: ErrorCodeNumber = 0
    protocol_type: Annotated[String | None, Versions("5+"), IGNORABLE] = None
    protocol_name: Annotated[String | None, Versions("5+"), IGNORABLE] = None
    assignment: Bytes = b""
