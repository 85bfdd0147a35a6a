"""DeleteGroups (key 42): delete groups without members, and their offsets (KIP-229).

v2 is flexible, v3 explains errors.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Int16, Int32, Message, String, Struct, Versions


class DeleteGroupsRequest(Message, versions="0-3", flexible="2+"):
    groups_names: list[String] = []


class DeletableGroupResult(Struct):
    group_id: String = ""
    error_code: Int16 = 0
    error_message: Annotated[String | None, Versions("3+"), IGNORABLE] = None


class DeleteGroupsResponse(Message, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult] = []
