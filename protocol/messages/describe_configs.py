"""DescribeConfigs (key 32): the settings of topics, brokers and more, and where each value comes from (KIP-133).

Resource types: 2 topic, 4 broker, 8 broker logger, 16 client metrics, 32 group. Null keys mean all of them.

- v0 tells `is_default`; from v1 on `config_source` (1 topic, 2 broker, 3 all brokers, 4 static, 5 default) and
  synonyms.
- v3 adds types and documentation (KIP-569); v4 is flexible.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    ErrorCodeNumber,
    Int8,
    Int32,
    Message,
    ResourceName,
    ResourceType,
    String,
    Struct,
    Versions,
)


class DescribeConfigsResource(Struct):
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""
    configuration_keys: list[String] | None = []


class DescribeConfigsRequest(Message, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = []
    include_synonyms: Annotated[Bool, Versions("1+")] = False
    include_documentation: Annotated[Bool, Versions("3+")] = False


class DescribeConfigsSynonym(Struct):
    name: String = ""
    value: String | None = ""
    source: Int8 = 0


class DescribeConfigsResourceResult(Struct):
    name: String = ""
    value: String | None = ""
    read_only: Bool = False
    is_default: Annotated[Bool, Versions("0")] = False
    config_source: Annotated[Int8, Versions("1+"), IGNORABLE] = -1
    is_sensitive: Bool = False
    synonyms: Annotated[list[DescribeConfigsSynonym], Versions("1+"), IGNORABLE] = []
    config_type: Annotated[Int8, Versions("3+"), IGNORABLE] = 0
    documentation: Annotated[String | None, Versions("3+"), IGNORABLE] = ""


class DescribeConfigsResult(Struct):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    resource_type: ResourceType = 0
    resource_name: ResourceName = ""
    configs: list[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult] = []
