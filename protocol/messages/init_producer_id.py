"""InitProducerId (key 22)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bool, Int16, Int32, Int64, Message, String, Versions


class InitProducerIdRequest(Message, versions="0-6", flexible="2+"):
    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Versions("3+")] = -1
    producer_epoch: Annotated[Int16, Versions("3+")] = -1
    enable2_pc: Annotated[Bool, Versions("6+")] = False
    keep_prepared_txn: Annotated[Bool, Versions("6+")] = False


class InitProducerIdResponse(Message, versions="0-6", flexible="2+"):
    throttle_time_ms: Annotated[Int32, IGNORABLE] = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
    ongoing_txn_producer_id: Annotated[Int64, Versions("6+")] = -1
    ongoing_txn_producer_epoch: Annotated[Int16, Versions("6+")] = -1
