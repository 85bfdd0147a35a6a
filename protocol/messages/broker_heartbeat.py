"""BrokerHeartbeat (key 63): a broker tells the controller that it lives, and how far it has read (KIP-631).

Spoken between brokers and controllers only. `gregor_unwritable_log_dirs` is not Kafka's: directories that still can be
read, and take no writes for want of space; for Kafka such a directory is offline.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    SENDER,
    Bool,
    BrokerId,
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    Tag,
    Uuid,
    Versions,
)


class BrokerHeartbeatRequest(Message, versions="0-1", flexible="0+"):
    broker_id: Annotated[BrokerId, SENDER] = 0
    broker_epoch: Int64 = -1
    current_metadata_offset: Int64 = 0
    want_fence: Bool = False
    want_shut_down: Bool = False
    offline_log_dirs: Annotated[list[Uuid], Versions("1+"), Tag(0)] = []
    gregor_unwritable_log_dirs: Annotated[list[Uuid], Versions("1+"), Tag(18258), IGNORABLE] = []


class BrokerHeartbeatResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    is_caught_up: Bool = False
    is_fenced: Bool = True
    should_shut_down: Bool = False
