"""UnregisterBroker (key 64): forget a broker that will not come back (KIP-500)."""

from __future__ import annotations

from ..schema import BrokerId, ErrorCodeNumber, Int32, Message, String


class UnregisterBrokerRequest(Message, versions="0", flexible="0+"):
    broker_id: BrokerId = 0


class UnregisterBrokerResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
