"""AddRaftVoter (key 80): add a controller to the metadata quorum (KIP-853)."""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    Bool,
    ErrorCodeNumber,
    Int32,
    Message,
    String,
    Struct,
    Uint16,
    Uuid,
    Versions,
)


class Listener(Struct):
    name: String = ""
    host: String = ""
    port: Uint16 = 0


class AddRaftVoterRequest(Message, versions="0-1", flexible="0+"):
    cluster_id: String | None = ""
    timeout_ms: Int32 = 0
    voter_id: Int32 = 0
    voter_directory_id: Uuid = NO_UUID
    listeners: list[Listener] = []
    ack_when_committed: Annotated[Bool, Versions("1+")] = True


class AddRaftVoterResponse(Message, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, IGNORABLE] = ""
