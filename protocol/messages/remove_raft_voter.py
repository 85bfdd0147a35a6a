"""RemoveRaftVoter (key 81): take a controller out of the metadata quorum (KIP-853)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, NO_UUID, ErrorCodeNumber, Int32, Message, String, Uuid


class RemoveRaftVoterRequest(Message, versions="0", flexible="0+"):
    cluster_id: String | None = ""
    voter_id: Int32 = 0
    voter_directory_id: Uuid = NO_UUID


class RemoveRaftVoterResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, IGNORABLE] = ""
