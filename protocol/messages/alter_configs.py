"""AlterConfigs (key 33): replace all settings of a topic or broker by those given; the others return to their defaults.

v2 is flexible. Clients since 2.3 use IncrementalAlterConfigs (KIP-339).
"""

from __future__ import annotations

from ..schema import Bool, ErrorCodeNumber, Int32, Message, ResourceName, ResourceType, String, Struct


class AlterableConfig(Struct):
    name: String = ""
    value: String | None = ""


class AlterConfigsResource(Struct):
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""
    configs: list[AlterableConfig] = []


class AlterConfigsRequest(Message, versions="0-2", flexible="2+"):
    resources: list[AlterConfigsResource] = []
    validate_only: Bool = False


class AlterConfigsResourceResponse(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""


class AlterConfigsResponse(Message, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = 0
    responses: list[AlterConfigsResourceResponse] = []
