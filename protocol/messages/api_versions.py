"""ApiVersions (key 18): which versions of which APIs the broker serves.

- v3 is flexible and tells the client's software name and version (KIP-511), and features (KIP-584).
- v5 says which broker the client believes to have reached (KIP-1242).

A version that the broker lacks is answered in v0 with UNSUPPORTED_VERSION and the versions it has; the response header
is never flexible. Clients before 0.10 do not send this request at all.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bool, ErrorCodeNumber, Int16, Int32, Int64, Message, String, Struct, Tag, Versions


class ApiVersionsRequest(Message, versions="0-5", flexible="3+"):
    client_software_name: Annotated[String, Versions("3+"), IGNORABLE] = ""
    client_software_version: Annotated[String, Versions("3+"), IGNORABLE] = ""
    cluster_id: Annotated[String | None, Versions("5+"), IGNORABLE] = None
    node_id: Annotated[Int32, Versions("5+"), IGNORABLE] = -1


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Message, versions="0-5", flexible="3+"):
    error_code: ErrorCodeNumber = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    supported_features: Annotated[list[SupportedFeatureKey], Versions("3+"), Tag(0), IGNORABLE] = []
    finalized_features_epoch: Annotated[Int64, Versions("3+"), Tag(1), IGNORABLE] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], Versions("3+"), Tag(2), IGNORABLE] = []
    zk_migration_ready: Annotated[Bool, Versions("3+"), Tag(3), IGNORABLE] = False
