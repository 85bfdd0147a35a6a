"""ApiVersions: the versions that this broker serves, from the table of APIs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ....protocol.apis import ApiKey
from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ...metadata.features import supported_levels
from ..contract import RequestContext

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Valid names and versions of client software (KIP-511)."""

FIRST_VERSION_THAT_STANDS_LEVEL_0 = 4


def handle_api_versions(request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
    """List the versions that this listener serves, and record the client's software name (KIP-511).

    Raises BrokerError INVALID_REQUEST for a malformed name.
    """
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(name) for name in names):
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        context.client.software_name, context.client.software_version = names
    finalized = context.services.metadata.state.features
    return ApiVersionsResponse(
        api_keys=list(context.dispatch.offered),
        supported_features=_supported_features(finalized, context.api_version),
        finalized_features_epoch=context.services.metadata.end_offset - 1,
        finalized_features=[
            FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
            for name, level in finalized.items()
            if level > 0
        ],
    )


def unsupported_version(lowest: int, highest: int) -> ApiVersionsResponse:
    """Return the version 0 answer to an unsupported ApiVersions version; clients retry in this range (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=lowest, max_version=highest)],
    )


def _supported_features(finalized: Mapping[str, int], version: int) -> list[SupportedFeatureKey]:
    return [
        SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
        for name, (lowest, highest) in supported_levels(finalized).items()
        # Clients of v3 fail on a feature whose lowest level is 0 (KAFKA-17011).
        if lowest > 0 or version >= FIRST_VERSION_THAT_STANDS_LEVEL_0
    ]
