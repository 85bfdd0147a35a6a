"""IncrementalAlterConfigs (key 44): change single settings and leave the rest alone (KIP-339).

`config_operation`: 0 set, 1 delete, 2 append to a list, 3 subtract from a list. v1 is flexible.
"""

from __future__ import annotations

from ..schema import Bool, ErrorCodeNumber, Int8, Int32, Message, ResourceName, ResourceType, String, Struct


class AlterableConfig(Struct):
    name: String = ""
    config_operation: Int8 = 0
    value: String | None = ""


class AlterConfigsResource(Struct):
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""
    configs: list[AlterableConfig] = []


class IncrementalAlterConfigsRequest(Message, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""


class IncrementalAlterConfigsResponse(Message, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
