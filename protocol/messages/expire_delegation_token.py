"""ExpireDelegationToken (key 40): change when a token ends, at once if the period is negative (KIP-48).

v2 is flexible.
"""

from __future__ import annotations

from ..schema import Bytes, ErrorCodeNumber, Int32, Int64, Message


class ExpireDelegationTokenRequest(Message, versions="0-2", flexible="2+"):
    hmac: Bytes = b""
    expiry_time_period_ms: Int64 = 0


class ExpireDelegationTokenResponse(Message, versions="0-2", flexible="2+"):
    error_code: ErrorCodeNumber = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
