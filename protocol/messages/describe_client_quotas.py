"""DescribeClientQuotas (key 48): the limits set for users, client ids and addresses (KIP-546).

`match_type`: 0 exactly `match`, 1 the default entity, 2 any with a name. v1 is flexible.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import CLIENT_QUOTA_ENTITY, Bool, ErrorCodeNumber, Float64, Int8, Int32, Message, String, Struct


class ComponentData(Struct):
    entity_type: String = ""
    match_type: Int8 = 0
    match: String | None = ""


class DescribeClientQuotasRequest(Message, versions="0-1", flexible="1+"):
    components: list[ComponentData] = []
    strict: Bool = False


class EntityData(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class ValueData(Struct):
    key: String = ""
    value: Float64 = 0.0


class EntryData(Struct):
    entity: Annotated[list[EntityData], CLIENT_QUOTA_ENTITY] = []
    values: list[ValueData] = []


class DescribeClientQuotasResponse(Message, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    entries: list[EntryData] | None = []
