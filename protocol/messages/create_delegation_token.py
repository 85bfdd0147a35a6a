"""CreateDelegationToken (key 38): issue a token that stands for a user (KIP-48).

v2 is flexible, v3 lets one user ask for another (KIP-373).
"""

from __future__ import annotations

from typing import Annotated

from ..schema import Bytes, ErrorCodeNumber, Int32, Int64, Message, String, Struct, Versions


class CreatableRenewers(Struct):
    principal_type: String = ""
    principal_name: String = ""


class CreateDelegationTokenRequest(Message, versions="0-3", flexible="2+"):
    owner_principal_type: Annotated[String | None, Versions("3+")] = ""
    owner_principal_name: Annotated[String | None, Versions("3+")] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64 = 0


class CreateDelegationTokenResponse(Message, versions="0-3", flexible="2+"):
    error_code: ErrorCodeNumber = 0
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, Versions("3+")] = ""
    token_requester_principal_name: Annotated[String, Versions("3+")] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    throttle_time_ms: Int32 = 0
