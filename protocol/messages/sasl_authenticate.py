"""SaslAuthenticate (key 36): one token of a SASL exchange, after SaslHandshake v1 (KIP-152).

v1 tells how long the session lasts before the client must authenticate again (KIP-368), v2 is flexible.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bytes, ErrorCodeNumber, Int64, Message, String, Versions


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+"):
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Versions("1+"), IGNORABLE] = 0
