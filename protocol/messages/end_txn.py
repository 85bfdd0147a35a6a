"""EndTxn (key 26): commit or abort the transaction (KIP-98).

v3 is flexible; v5 answers with the id and epoch to go on with, since each transaction gets an epoch of its own
(KIP-890).
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


class EndTxnRequest(Message, versions="0-5", flexible="3+"):
    transactional_id: TransactionalId = ""
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    committed: Bool = False


class EndTxnResponse(Message, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    producer_id: Annotated[ProducerId, Versions("5+"), IGNORABLE] = -1
    producer_epoch: Annotated[Int16, Versions("5+"), IGNORABLE] = -1
