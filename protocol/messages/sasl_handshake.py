"""SaslHandshake (key 17): agree on a SASL mechanism.

After v0 the tokens follow as bare length-prefixed bytes, after v1 as SaslAuthenticate requests (KIP-152). This API has
no flexible version.
"""

from __future__ import annotations

from ..schema import ErrorCodeNumber, Message, String


class SaslHandshakeRequest(Message, versions="0-1"):
    mechanism: String = ""


class SaslHandshakeResponse(Message, versions="0-1"):
    error_code: ErrorCodeNumber = 0
    mechanisms: list[String] = []
