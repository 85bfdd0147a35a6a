"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

- v0 knows groups only; from v1 on `key_type` is 0 for groups, 1 for transactions, from v6 on 2 for share groups.
- v3 is flexible; v4 asks for several keys at once: `coordinator_keys` and `coordinators` replace the single ones
  (KIP-699); v5 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    BrokerId,
    CoordinatorKey,
    ErrorCodeNumber,
    Int8,
    Int32,
    Message,
    String,
    Struct,
    Versions,
)


class FindCoordinatorRequest(Message, versions="0-6", flexible="3+"):
    key: Annotated[CoordinatorKey, Versions("0-3")] = ""
    key_type: Annotated[Int8, Versions("1+")] = 0
    coordinator_keys: Annotated[list[CoordinatorKey], Versions("4+")] = []


class Coordinator(Struct):
    key: CoordinatorKey = ""
    node_id: BrokerId = 0
    host: String = ""
    port: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, IGNORABLE] = ""


class FindCoordinatorResponse(Message, versions="0-6", flexible="3+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    error_code: Annotated[ErrorCodeNumber, Versions("0-3")] = 0
    error_message: Annotated[String | None, Versions("1-3"), IGNORABLE] = ""
    node_id: Annotated[BrokerId, Versions("0-3")] = 0
    host: Annotated[String, Versions("0-3")] = ""
    port: Annotated[Int32, Versions("0-3")] = 0
    coordinators: Annotated[list[Coordinator], Versions("4+")] = []
