"""The version of each API that a client sends on a connection: the newest that both sides have, or the version that a
client of an old release sends; and the negotiation of versions by ApiVersions (KIP-35, KIP-511).
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from .apis import AnyApiKey, ApiKey, valid_versions
from .codec import decode
from .errors import BrokerError, DecodeError, ErrorCode
from .messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

ERROR_CODE = Struct(">h")
SOFTWARE_NAME = "gregor"
SOFTWARE_VERSION = "1"

NEWEST_SPOKEN: Mapping[AnyApiKey, int] = {
    # The next versions belong to KIP-890's transactions (Produce 12) or identify topics by id only.
    ApiKey.PRODUCE: 11,
    ApiKey.FETCH: 17,
    ApiKey.OFFSET_COMMIT: 9,
    # The next versions ask for several groups or keys in one request.
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    # The next versions are for brokers (AddPartitionsToTxn), or belong to the transactions of KIP-890.
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
    ApiKey.TXN_OFFSET_COMMIT: 4,
    ApiKey.END_TXN: 4,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.INIT_PRODUCER_ID: 5,
    ApiKey.API_VERSIONS: 3,
}
"""The newest version that Gregor sends of APIs for which `protocol` declares newer ones."""

_VERSIONS_0_8 = {
    ApiKey.PRODUCE: 0,
    ApiKey.FETCH: 0,
    ApiKey.LIST_OFFSETS: 0,
    ApiKey.METADATA: 0,
    ApiKey.OFFSET_COMMIT: 1,
    ApiKey.OFFSET_FETCH: 1,
    ApiKey.FIND_COORDINATOR: 0,
}
_VERSIONS_0_9 = {
    **_VERSIONS_0_8,
    ApiKey.PRODUCE: 1,
    ApiKey.FETCH: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.JOIN_GROUP: 0,
    ApiKey.SYNC_GROUP: 0,
    ApiKey.HEARTBEAT: 0,
    ApiKey.LEAVE_GROUP: 0,
    ApiKey.DESCRIBE_GROUPS: 0,
    ApiKey.LIST_GROUPS: 0,
}
_VERSIONS_0_10 = {
    **_VERSIONS_0_9,
    ApiKey.PRODUCE: 2,
    ApiKey.FETCH: 3,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.METADATA: 2,
    ApiKey.OFFSET_FETCH: 2,
    ApiKey.JOIN_GROUP: 1,
    ApiKey.CREATE_TOPICS: 1,
    ApiKey.DELETE_TOPICS: 0,
    ApiKey.SASL_HANDSHAKE: 0,
}
_VERSIONS_0_11 = {
    **_VERSIONS_0_10,
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 5,
    ApiKey.LIST_OFFSETS: 2,
    ApiKey.METADATA: 4,
    ApiKey.OFFSET_COMMIT: 3,
    ApiKey.OFFSET_FETCH: 3,
    ApiKey.FIND_COORDINATOR: 1,
    ApiKey.JOIN_GROUP: 2,
    ApiKey.SYNC_GROUP: 1,
    ApiKey.HEARTBEAT: 1,
    ApiKey.LEAVE_GROUP: 1,
    ApiKey.DESCRIBE_GROUPS: 1,
    ApiKey.LIST_GROUPS: 1,
    ApiKey.CREATE_TOPICS: 2,
    ApiKey.DELETE_TOPICS: 1,
    ApiKey.DELETE_RECORDS: 0,
    ApiKey.INIT_PRODUCER_ID: 0,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 0,
    ApiKey.ADD_PARTITIONS_TO_TXN: 0,
    ApiKey.ADD_OFFSETS_TO_TXN: 0,
    ApiKey.END_TXN: 0,
    ApiKey.TXN_OFFSET_COMMIT: 0,
    ApiKey.DESCRIBE_CONFIGS: 0,
    ApiKey.ALTER_CONFIGS: 0,
}

PINNED_RELEASES: Mapping[str, Mapping[ApiKey, int]] = {
    "0.8": _VERSIONS_0_8,
    "0.9": _VERSIONS_0_9,
    "0.10": _VERSIONS_0_10,
    "0.11": _VERSIONS_0_11,
}
"""The versions that the clients of these Kafka releases send (0.8: 0.8.2; 0.10: 0.10.2); with them ours is a legacy
client.
"""


class SpokenVersions:
    """The version of each API on one connection."""

    def __init__(self, offered: Mapping[int, tuple[int, int]], *, are_pinned: bool = False) -> None:
        self._offered = offered
        self._are_pinned = are_pinned
        self._chosen: dict[tuple[int, int | None], int] = {}
        """The versions that were found already, by API and bound."""

    @classmethod
    def pinned(cls, release: str) -> SpokenVersions:
        """Return the versions that a client of an old release would send.

        Raises KeyError for releases not in PINNED_RELEASES.
        """
        versions = PINNED_RELEASES[release]
        return cls({key: (version, version) for key, version in versions.items()}, are_pinned=True)

    @classmethod
    def negotiated(cls, answer: ApiVersionsResponse) -> SpokenVersions:
        """Return the newest version of each API that both sides have."""
        return cls({offered.api_key: (offered.min_version, offered.max_version) for offered in answer.api_keys})

    @property
    def offered(self) -> Mapping[int, tuple[int, int]]:
        """The oldest and the newest version of each API that the broker offers, by the number of the API."""
        return self._offered

    def __contains__(self, key: ApiKey) -> bool:
        return self._version(key) is not None

    def version(self, key: AnyApiKey, *, newest: int | None = None) -> int:
        """Return the version to send, up to `newest`.

        Raises BrokerError UNSUPPORTED_VERSION if both sides have none in common.
        """
        known = self._chosen.get((key, newest))
        if known is not None:
            return known
        version = self._version(key, newest)
        if version is None:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"no version of {key.name} in common with the broker")
        self._chosen[key, newest] = version
        return version

    def _version(self, key: AnyApiKey, bound: int | None = None) -> int | None:
        if key not in self._offered:
            return None
        oldest_offered, newest_offered = self._offered[key]
        oldest, newest = valid_versions(key)
        newest = min(newest, newest_offered, NEWEST_SPOKEN.get(key, newest))
        if self._are_pinned:
            oldest_offered, newest = 0, newest_offered
        if bound is not None:
            newest = min(newest, bound)
        return newest if newest >= max(oldest, oldest_offered) else None


class Negotiation:
    """A negotiation of the versions: ApiVersions is sent in a new version and, if the broker lacks it, in version 0."""

    def __init__(self) -> None:
        self.request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
        self.version = NEWEST_SPOKEN[ApiKey.API_VERSIONS]
        """The version in which `request` is to be sent next."""

    def take(self, body: memoryview) -> SpokenVersions | None:
        """Return the versions in common by this answer, or None if the request must be sent again, in `version`.

        Raises BrokerError for a refusal, DecodeError for malformed bytes.
        """
        if len(body) < ERROR_CODE.size:
            raise DecodeError("an answer to ApiVersions without an error code")
        # A broker without the version answers in the layout of version 0; every version begins with the error code.
        (code,) = ERROR_CODE.unpack_from(body)
        if code == ErrorCode.UNSUPPORTED_VERSION and self.version > 0:
            self.version = 0
            return None
        if code:
            raise BrokerError(ErrorCode(code), "ApiVersions")
        return SpokenVersions.negotiated(decode(ApiVersionsResponse, body, self.version))
