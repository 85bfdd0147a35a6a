"""DeleteGroups (key 42): delete groups without members, and their offsets (KIP-229).

v2 is flexible, v3 explains errors.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, ErrorCodeNumber, GroupId, Int32, Message, String, Struct, Versions


class DeleteGroupsRequest(Message, versions="0-3", flexible="2+"):
    groups_names: list[GroupId] = []


class DeletableGroupResult(Struct):
    group_id: GroupId = ""
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, Versions("3+"), IGNORABLE] = None


class DeleteGroupsResponse(Message, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
