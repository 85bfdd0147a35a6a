"""DescribeDelegationToken (key 41): list tokens (KIP-48). v2 is flexible, v3 tells who asked for them (KIP-373)."""

from __future__ import annotations

from typing import Annotated

from ..schema import Bytes, ErrorCodeNumber, Int32, Int64, Message, String, Struct, Versions


class DescribeDelegationTokenOwner(Struct):
    principal_type: String = ""
    principal_name: String = ""


class DescribeDelegationTokenRequest(Message, versions="0-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribedDelegationTokenRenewer(Struct):
    principal_type: String = ""
    principal_name: String = ""


class DescribedDelegationToken(Struct):
    principal_type: String = ""
    principal_name: String = ""
    token_requester_principal_type: Annotated[String, Versions("3+")] = ""
    token_requester_principal_name: Annotated[String, Versions("3+")] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: String = ""
    hmac: Bytes = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribeDelegationTokenResponse(Message, versions="0-3", flexible="2+"):
    error_code: ErrorCodeNumber = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0
