"""Envelope (key 58): a broker forwards a client's request to the controller (KIP-590). Spoken between brokers only."""

from __future__ import annotations

from ..schema import Bytes, ErrorCodeNumber, Message


class EnvelopeRequest(Message, versions="0", flexible="0+"):
    request_data: Bytes = b""
    request_principal: Bytes | None = b""
    client_host_address: Bytes = b""


class EnvelopeResponse(Message, versions="0", flexible="0+"):
    response_data: Bytes | None = None
    error_code: ErrorCodeNumber = 0
