"""InitProducerId (key 22): get a producer id and epoch, for idempotence or, with a transactional id, transactions.

- v2 is flexible; v3 lets a producer raise its own epoch after an error (KIP-360).
- v4 may answer PRODUCER_FENCED, v5 TRANSACTION_ABORTABLE (KIP-890); v6 is for two-phase commit (KIP-939).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    Bool,
    ErrorCodeNumber,
    Int16,
    Int32,
    Message,
    ProducerId,
    TransactionalId,
    Versions,
)


class InitProducerIdRequest(Message, versions="0-6", flexible="2+"):
    transactional_id: TransactionalId | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[ProducerId, Versions("3+")] = -1
    producer_epoch: Annotated[Int16, Versions("3+")] = -1
    enable2_pc: Annotated[Bool, Versions("6+")] = False
    keep_prepared_txn: Annotated[Bool, Versions("6+")] = False


class InitProducerIdResponse(Message, versions="0-6", flexible="2+"):
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    error_code: ErrorCodeNumber = 0
    producer_id: ProducerId = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[ProducerId, Versions("6+")] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, Versions("6+")] = -1
