"""DescribeClients (key 18258): who uses a Gregor broker, with which API versions, and what converting for them costs.

Not one of Kafka's APIs (see `GregorApiKey`); for what the fields mean see the broker's `client_census.py`.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, ErrorCodeNumber, Int16, Int32, Int64, Message, String, Struct, Tag, Versions


class DescribeClientsRequest(Message, versions="0", flexible="0+"):
    pass


class UsedApiVersion(Struct):
    api_key: Int16 = 0
    api_version: Int16 = 0
    request_count: Int64 = 0


class ConversionWork(Struct):
    record_count: Int64 = 0
    stored_bytes: Int64 = 0
    cpu_micros: Int64 = 0
    temporary_bytes: Annotated[Int64, Versions("0+"), Tag(0), IGNORABLE] = 0


class DescribedClient(Struct):
    client_id: String = ""
    host: String = ""
    software_name: String = ""
    software_version: String = ""
    connection_count: Int32 = 0
    first_seen_ms: Int64 = -1
    last_seen_ms: Int64 = -1
    down_conversion: ConversionWork = ConversionWork()
    up_conversion: ConversionWork = ConversionWork()
    refused_down_conversions: Int64 = 0
    api_versions: list[UsedApiVersion] = []
    refused_zstd: Annotated[Int64, Versions("0+"), Tag(0), IGNORABLE] = 0


class DescribeClientsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    forgotten_clients: Int64 = 0
    clients: list[DescribedClient] = []
