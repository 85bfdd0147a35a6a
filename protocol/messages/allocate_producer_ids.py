"""AllocateProducerIds (key 67): a broker asks the controller for a block of producer ids (KIP-730).

Spoken between brokers only.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import SENDER, BrokerId, ErrorCodeNumber, Int32, Int64, Message, ProducerId


class AllocateProducerIdsRequest(Message, versions="0", flexible="0+"):
    broker_id: Annotated[BrokerId, SENDER] = 0
    broker_epoch: Int64 = -1


class AllocateProducerIdsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    producer_id_start: ProducerId = 0
    producer_id_len: Int32 = 0
