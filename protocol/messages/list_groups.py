"""ListGroups (key 16): all groups that this broker coordinates.

v3 is flexible, v4 filters by state and tells it (KIP-518), v5 filters by type: classic, consumer, share (KIP-848).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, ErrorCodeNumber, GroupId, Int32, Message, String, Struct, Versions


class ListGroupsRequest(Message, versions="0-5", flexible="3+"):
    states_filter: Annotated[list[String], Versions("4+")] = []
    types_filter: Annotated[list[String], Versions("5+")] = []


class ListedGroup(Struct):
    group_id: GroupId = ""
    protocol_type: String = ""
    group_state: Annotated[String, Versions("4+"), IGNORABLE] = ""
    group_type: Annotated[String, Versions("5+"), IGNORABLE] = ""


class ListGroupsResponse(Message, versions="0-5", flexible="3+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    error_code: ErrorCodeNumber = 0
    groups: list[ListedGroup] = []
