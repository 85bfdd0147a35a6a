"""GetTelemetrySubscriptions (key 71): a client asks which metrics it should push, and how often (KIP-714)."""

from __future__ import annotations

from ..schema import NO_UUID, Bool, ErrorCodeNumber, Int8, Int32, Message, String, Uuid


class GetTelemetrySubscriptionsRequest(Message, versions="0", flexible="0+"):
    client_instance_id: Uuid = NO_UUID


class GetTelemetrySubscriptionsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    client_instance_id: Uuid = NO_UUID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: Bool = False
    requested_metrics: list[String] = []
