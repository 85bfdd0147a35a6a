"""DescribeUserScramCredentials (key 50): which SCRAM mechanisms users have (KIP-554); 1 is SHA-256, 2 is SHA-512."""

from __future__ import annotations

from ..schema import ErrorCodeNumber, Int8, Int32, Message, ScramUserName, String, Struct


class UserName(Struct):
    name: ScramUserName = ""


class DescribeUserScramCredentialsRequest(Message, versions="0", flexible="0+"):
    users: list[UserName] | None = []


class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: ScramUserName = ""
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    credential_infos: list[CredentialInfo] = []


class DescribeUserScramCredentialsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""
    results: list[DescribeUserScramCredentialsResult] = []
