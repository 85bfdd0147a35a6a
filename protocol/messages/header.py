"""The headers before every request and response; `apis.py` tells which version goes with which request.

The client id keeps its int16 length in the flexible header too, so that any broker can read it (KIP-511).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import IGNORABLE, NEVER_COMPACT, Int16, Int32, Message, String, Versions


class RequestHeader(Message, versions="0-2", flexible="2+"):
    request_api_key: Int16 = 0
    request_api_version: Int16 = 0
    correlation_id: Int32 = 0
    client_id: Annotated[String | None, Versions("1+"), IGNORABLE, NEVER_COMPACT] = ""


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    correlation_id: Int32 = 0
