"""ListTransactions (key 66): the transactional ids that this broker coordinates (KIP-664).

v1 filters by duration in milliseconds (KIP-994), v2 by a pattern (KIP-1152).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    ErrorCodeNumber,
    Int32,
    Int64,
    Message,
    ProducerId,
    String,
    Struct,
    TransactionalId,
    Versions,
)


class ListTransactionsRequest(Message, versions="0-2", flexible="0+"):
    state_filters: list[String] = []
    producer_id_filters: list[ProducerId] = []
    duration_filter: Annotated[Int64, Versions("1+")] = -1
    transactional_id_pattern: Annotated[String | None, Versions("2+")] = None


class TransactionState(Struct):
    transactional_id: TransactionalId = ""
    producer_id: ProducerId = 0
    transaction_state: String = ""


class ListTransactionsResponse(Message, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []
