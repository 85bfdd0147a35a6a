"""RenewDelegationToken (key 39): extend a token's life (KIP-48). v2 is flexible."""

from __future__ import annotations

from ..schema import Bytes, ErrorCodeNumber, Int32, Int64, Message


class RenewDelegationTokenRequest(Message, versions="0-2", flexible="2+"):
    hmac: Bytes = b""
    renew_period_ms: Int64 = 0


class RenewDelegationTokenResponse(Message, versions="0-2", flexible="2+"):
    error_code: ErrorCodeNumber = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
