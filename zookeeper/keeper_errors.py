"""ZooKeeper's error codes, and the exception that carries one to a client."""

from __future__ import annotations

from enum import IntEnum


class KeeperCode(IntEnum):
    """An error code of ZooKeeper's protocol (`KeeperException.Code`), of those that ZooKeeper 3.4 clients know."""

    OK = 0
    SYSTEMERROR = -1
    RUNTIMEINCONSISTENCY = -2
    MARSHALLINGERROR = -5
    UNIMPLEMENTED = -6
    OPERATIONTIMEOUT = -7
    BADARGUMENTS = -8
    NONODE = -101
    NOAUTH = -102
    BADVERSION = -103
    NOCHILDRENFOREPHEMERALS = -108
    NODEEXISTS = -110
    NOTEMPTY = -111
    SESSIONEXPIRED = -112
    INVALIDACL = -114


class KeeperError(Exception):
    """A failure of one request, which its reply reports by its code; the text is for the log only."""

    def __init__(self, code: KeeperCode, text: str = "") -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text

    def __str__(self) -> str:
        return f"{self.code.name}: {self.text}" if self.text else self.code.name
