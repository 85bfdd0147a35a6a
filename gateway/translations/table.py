"""The table of translations: one row for each API of which Kafka 4 removed versions (`protocol.kafka_4_floor`).

Fetch is not here: its answers are parts, and `fetching/converted.py` makes them.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.apis import AnyApiKey, ApiKey
from .contract import Translation
from .list_offsets import translate_list_offsets
from .older_fields import (
    same_fields,
    translate_describe_configs,
    translate_join_group,
    translate_offset_commit,
    translate_offset_fetch,
)

TRANSLATIONS: Mapping[AnyApiKey, Translation] = {
    ApiKey.LIST_OFFSETS: translate_list_offsets,
    ApiKey.OFFSET_COMMIT: translate_offset_commit,
    ApiKey.OFFSET_FETCH: translate_offset_fetch,
    ApiKey.JOIN_GROUP: translate_join_group,
    ApiKey.CREATE_TOPICS: same_fields,
    ApiKey.DELETE_TOPICS: same_fields,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: same_fields,
    ApiKey.DESCRIBE_ACLS: same_fields,
    ApiKey.CREATE_ACLS: same_fields,
    ApiKey.DELETE_ACLS: same_fields,
    ApiKey.DESCRIBE_CONFIGS: translate_describe_configs,
    ApiKey.ALTER_REPLICA_LOG_DIRS: same_fields,
    ApiKey.DESCRIBE_LOG_DIRS: same_fields,
    ApiKey.CREATE_DELEGATION_TOKEN: same_fields,
    ApiKey.RENEW_DELEGATION_TOKEN: same_fields,
    ApiKey.EXPIRE_DELEGATION_TOKEN: same_fields,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: same_fields,
}
"""The translation of each API, for the versions below its floor. Produce has a row of its own in the responder, as its
conversion needs the threads of a gateway."""
