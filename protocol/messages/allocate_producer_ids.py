"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730).

Spoken between brokers only.
"""

from __future__ import annotations

from ..schema import Int16, Int32, Int64, Message


class AllocateProducerIdsRequest(Message, versions="0", flexible="0+"):
    broker_id: Int32 = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
