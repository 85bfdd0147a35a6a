"""PushTelemetry (key 72): a client pushes its metrics as compressed OTLP (KIP-714)."""

from __future__ import annotations

from ..schema import NO_UUID, Bool, Bytes, ErrorCodeNumber, Int8, Int32, Message, Uuid


class PushTelemetryRequest(Message, versions="0", flexible="0+"):
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    terminating: Bool = False
    compression_type: Int8 = 0
    metrics: Bytes = b""


class PushTelemetryResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
