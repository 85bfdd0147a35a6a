"""JAAS text: ``sasl.jaas.config`` of clients and listeners, and the login files of Kafka's images.

The syntax is that of Kafka's ``JaasConfig``: a login module's class, a control flag, options, a semicolon. The classes
only choose the mechanism here. No error shows any part of the text, which holds passwords.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import SecuritySettingError
from .password import Password
from .sasl import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS

CONTROL_FLAGS = ("required", "requisite", "sufficient", "optional")
LOGIN_MODULES: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": (PLAIN,),
    "ScramLoginModule": SCRAM_MECHANISMS,
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}
"""The mechanisms of each login module, by the name of its class without the package."""
_TOKEN = re.compile(
    r"""\s*(?:(?P<comment>//[^\n]*|/\*.*?\*/|\#[^\n]*)
    |"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'
    |(?P<word>[^\s"';={}]+)|(?P<mark>[;={}]))""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_ESCAPED = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module with its options, all of which count as secrets."""

    module: str
    options: Mapping[str, Password]

    @property
    def name(self) -> str:
        """The name of the module's class without its package."""
        return self.module.rpartition(".")[2]

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms of the module, none for an unknown module."""
        return LOGIN_MODULES.get(self.name, ())

    def option(self, name: str) -> str | None:
        """Return the text of an option, None if it is not set."""
        value = self.options.get(name)
        return None if value is None else value.value

    def users(self) -> dict[str, Password]:
        """Return the passwords of the options ``user_NAME``, by user."""
        return {name.removeprefix("user_"): value for name, value in self.options.items() if name.startswith("user_")}


def parse_jaas(text: str, key: str = "sasl.jaas.config") -> JaasEntry:
    """Return the only login module of a text. Raises SecuritySettingError that names ``key``."""
    entries, rest = _entries(_tokens(text, key), key)
    if rest or len(entries) != 1:
        reason = "it must be one login module with its options" if entries else "it has no login module"
        raise SecuritySettingError(f"{key}: {reason}, ended by a semicolon")
    return entries[0]


def parse_login_file(text: str, place: str) -> dict[str, list[JaasEntry]]:
    """Return the login modules in a file of ``java.security.auth.login.config``, by the name of their context.

    Raises SecuritySettingError that names ``place``.
    """
    tokens = _tokens(text, place)
    contexts: dict[str, list[JaasEntry]] = {}
    while tokens:
        if len(tokens) < 4 or tokens[1] != (True, "{"):
            raise SecuritySettingError(f"{place}: expected NAME {{ login modules }};")
        context = tokens[0][1]
        contexts[context], tokens = _entries(tokens[2:], place)
        if tokens[:2] != [(True, "}"), (True, ";")]:
            raise SecuritySettingError(f"{place}: {context} does not end with }};")
        tokens = tokens[2:]
    return contexts


_Token = tuple[bool, str]
"""Whether the token is a mark (one of ``; = { }``), and its text."""


def _tokens(text: str, key: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            raise SecuritySettingError(f"{key}: malformed JAAS text at character {position}: a quote does not end")
        position = found.end()
        if found["comment"] is None:
            quoted = found["double"] if found["double"] is not None else found["single"]
            word = _ESCAPED.sub(_unescaped, quoted) if quoted is not None else found["word"] or found["mark"]
            tokens.append((found["mark"] is not None, word))
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    character = found[1]
    return chr(int(character, 8)) if character[0] in "01234567" else _ESCAPES.get(character, character)


def _entries(tokens: list[_Token], key: str) -> tuple[list[JaasEntry], list[_Token]]:
    """Return the login modules at the start, and the tokens behind them."""
    entries = []
    while tokens and not tokens[0][0]:
        module, *tokens = tokens
        if not tokens or tokens[0][1].lower() not in CONTROL_FLAGS:
            raise SecuritySettingError(
                f"{key}: a login module has no control flag: expected {', '.join(CONTROL_FLAGS)}"
            )
        tokens = tokens[1:]
        options: dict[str, Password] = {}
        while tokens and tokens[0] != (True, ";"):
            if len(tokens) < 3 or tokens[0][0] or tokens[1] != (True, "=") or tokens[2][0]:
                raise SecuritySettingError(f"{key}: the login module's option {len(options) + 1} is not NAME=VALUE")
            options[tokens[0][1]] = Password(tokens[2][1])
            tokens = tokens[3:]
        if not tokens:
            raise SecuritySettingError(f"{key}: JAAS config entry not terminated by semi-colon")
        tokens = tokens[1:]
        entries.append(JaasEntry(module[1], options))
    return entries, tokens
