"""How a principal travels inside Envelope and delegation tokens (KIP-590), after an int16 version."""

from __future__ import annotations

from ..schema import Bool, Message, String


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: String = ""
    name: String = ""
    token_authenticated: Bool = False
