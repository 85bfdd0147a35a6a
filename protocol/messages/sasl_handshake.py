"""SaslHandshake (key 17)."""

from __future__ import annotations

from ..schema import Int16, Message, String


class SaslHandshakeRequest(Message, versions="0-1"):
    mechanism: String = ""


class SaslHandshakeResponse(Message, versions="0-1"):
    error_code: Int16 = 0
    mechanisms: list[String] = []
