"""AlterClientQuotas (key 49): set or remove limits for users, client ids and addresses (KIP-546). v1 is flexible."""

from __future__ import annotations

from typing import Annotated

from ..schema import CLIENT_QUOTA_ENTITY, Bool, ErrorCodeNumber, Float64, Int32, Message, String, Struct


class EntityData(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class OpData(Struct):
    key: String = ""
    value: Float64 = 0.0
    remove: Bool = False


class EntryData(Struct):
    entity: Annotated[list[EntityData], CLIENT_QUOTA_ENTITY] = []
    ops: list[OpData] = []


class AlterClientQuotasRequest(Message, versions="0-1", flexible="1+"):
    entries: list[EntryData] = []
    validate_only: Bool = False


class EntityDataResponse(Struct):
    entity_type: String = ""
    entity_name: String | None = ""


class EntryDataResponse(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    entity: Annotated[list[EntityDataResponse], CLIENT_QUOTA_ENTITY] = []


class AlterClientQuotasResponse(Message, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    entries: list[EntryDataResponse] = []
