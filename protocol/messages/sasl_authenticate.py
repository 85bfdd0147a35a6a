"""SaslAuthenticate (key 36)."""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, Bytes, Int16, Int64, Message, String, Versions


class SaslAuthenticateRequest(Message, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = b""


class SaslAuthenticateResponse(Message, versions="0-2", flexible="2+"):
    error_code: Int16 = 0
    error_message: String | None = ""
    auth_bytes: Bytes = b""
    session_lifetime_ms: Annotated[Int64, Versions("1+"), IGNORABLE] = 0
