"""The versions that a gateway offers: those of the broker upstream, and the older ones that it translates."""

from __future__ import annotations

from collections.abc import Mapping

from ..protocol.apis import AnyApiKey, ApiKey, api_key, valid_versions
from ..protocol.kafka_4_floor import KAFKA_4_0_0_FLOORS, KAFKA_4_FLOORS

VersionRange = tuple[int, int]


def translated_floor(key: AnyApiKey) -> int:
    """Return the first version of an API that needs no translation in front of any Kafka, 0 if all are served."""
    floor = KAFKA_4_FLOORS.get(key) or KAFKA_4_0_0_FLOORS.get(key)
    return 0 if floor is None else floor.version


def served_versions(listed: Mapping[int, VersionRange]) -> Mapping[int, VersionRange]:
    """Return the versions that a broker serves, from those that its ApiVersions lists.

    Kafka 4 lists Produce from version 0 on, for librdkafka's sake, and disconnects clients below version 3 all the same
    (KAFKA-18659).
    """
    fetch, produce = listed.get(ApiKey.FETCH), listed.get(ApiKey.PRODUCE)
    if fetch is None or produce is None or fetch[0] < translated_floor(ApiKey.FETCH):
        return listed
    return {**listed, ApiKey.PRODUCE: (max(produce[0], translated_floor(ApiKey.PRODUCE)), produce[1])}


def offered_versions(upstream: Mapping[int, VersionRange]) -> dict[AnyApiKey, VersionRange]:
    """Return the lowest and highest version of each API that a gateway serves in front of a broker.

    Versions that the broker does not serve any more are translated; newer ones than the broker's are not offered.
    """
    offered: dict[AnyApiKey, VersionRange] = {}
    for number, (lowest, highest) in upstream.items():
        try:
            key = api_key(number)
        except ValueError:
            continue
        oldest_known, newest_known = valid_versions(key)
        lowest = 0 if lowest <= translated_floor(key) else lowest
        lowest, highest = max(lowest, oldest_known), min(highest, newest_known)
        if isinstance(key, ApiKey) and lowest <= highest:
            offered[key] = (lowest, highest)
    return offered


def upstream_version(key: AnyApiKey, version: int, upstream: Mapping[int, VersionRange]) -> int | None:
    """Return the version in which a request of ``version`` goes upstream; None if the gateway does not serve it."""
    served = upstream.get(key)
    if served is None:
        return None
    lowest, highest = served
    oldest_known, newest_known = valid_versions(key)
    if not oldest_known <= version <= min(highest, newest_known):
        return None
    if version >= lowest:
        return version
    return lowest if lowest <= translated_floor(key) else None
