"""UpdateFeatures (key 57): raise or lower finalized features such as `metadata.version` (KIP-584).

v1 can only validate and has `upgrade_type` (KIP-778); v2 succeeds or fails as a whole.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bool, ErrorCodeNumber, Int8, Int16, Int32, Message, String, Struct, Versions


class FeatureUpdateKey(Struct):
    feature: String = ""
    max_version_level: Int16 = 0
    allow_downgrade: Annotated[Bool, Versions("0")] = False
    upgrade_type: Annotated[Int8, Versions("1+")] = 1


class UpdateFeaturesRequest(Message, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[Bool, Versions("1+")] = False


class UpdatableFeatureResult(Struct):
    feature: String = ""
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""


class UpdateFeaturesResponse(Message, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    results: Annotated[list[UpdatableFeatureResult], Versions("0-1"), IGNORABLE] = []
