"""Heartbeat (key 12): a member of a classic group shows that it lives.

REBALANCE_IN_PROGRESS tells it to join again. v1 has a throttle time, v3 static members (KIP-345), v4 is flexible.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, ErrorCodeNumber, GroupId, Int32, Message, String, Versions


class HeartbeatRequest(Message, versions="0-4", flexible="4+"):
    group_id: GroupId = ""
    generation_id: Int32 = 0
    member_id: String = ""
    group_instance_id: Annotated[String | None, Versions("3+")] = None


class HeartbeatResponse(Message, versions="0-4", flexible="4+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    error_code: ErrorCodeNumber = 0
