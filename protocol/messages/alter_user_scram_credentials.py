"""AlterUserScramCredentials (key 51): set or delete users' SCRAM credentials, already salted (KIP-554)."""

from __future__ import annotations

from ..schema import Bytes, ErrorCodeNumber, Int8, Int32, Message, ScramUserName, String, Struct


class ScramCredentialDeletion(Struct):
    name: ScramUserName = ""
    mechanism: Int8 = 0


class ScramCredentialUpsertion(Struct):
    name: ScramUserName = ""
    mechanism: Int8 = 0
    iterations: Int32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Message, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class AlterUserScramCredentialsResult(Struct):
    user: ScramUserName = ""
    error_code: ErrorCodeNumber = 0
    error_message: String | None = ""


class AlterUserScramCredentialsResponse(Message, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = 0
    results: list[AlterUserScramCredentialsResult] = []
