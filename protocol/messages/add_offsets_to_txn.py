"""AddOffsetsToTxn (key 25): announce that a transaction will commit offsets of a group (KIP-98).

v3 is flexible, v4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from __future__ import annotations

from ..schema import ErrorCodeNumber, GroupId, Int16, Int32, Message, ProducerId, TransactionalId


class AddOffsetsToTxnRequest(Message, versions="0-4", flexible="3+"):
    transactional_id: TransactionalId = ""
    producer_id: ProducerId = 0
    producer_epoch: Int16 = 0
    group_id: GroupId = ""


class AddOffsetsToTxnResponse(Message, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
