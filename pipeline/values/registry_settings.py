"""The settings of the connection to a schema registry, under Confluent's names.

    schema.registry.url                        http://a:8081,http://b:8081
    basic.auth.credentials.source              USER_INFO (the default where there is user info) or URL
    basic.auth.user.info                       NAME:PASSWORD
    bearer.auth.credentials.source             STATIC_TOKEN
    bearer.auth.token                          a token
    schema.registry.ssl.truststore.location    and the other ssl.* keys of Kafka's clients
    schema.registry.request.timeout.ms         10000, only in Gregor

Source: Confluent's SchemaRegistryClientConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from ...security.errors import SecuritySettingError
from ...security.password import Password
from ...security.tls import TLS_KEYS, TlsSettings
from ...storage.disk.properties import parse_properties
from ..errors import OptionError
from ..kafka.offset_options import parse_int

URL = "schema.registry.url"
USER_INFO = "basic.auth.user.info"
TOKEN = "bearer.auth.token"  # noqa: S105 (the name of a key)
TIMEOUT_MS = "schema.registry.request.timeout.ms"
PREFIX = "schema.registry."
_SOURCES = {"basic.auth.credentials.source": ("USER_INFO", "URL"), "bearer.auth.credentials.source": ("STATIC_TOKEN",)}
_KNOWN = (URL, USER_INFO, TOKEN, TIMEOUT_MS, *_SOURCES)


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The settings of a client of a registry. `urls` have no credentials and no slash at the end."""

    urls: tuple[str, ...]
    user_info: Password | None = None
    token: Password | None = None
    tls: TlsSettings = field(default_factory=TlsSettings)
    timeout_s: float = 10.0

    @property
    def shown_url(self) -> str:
        """The URLs for messages."""
        return ",".join(self.urls)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Parse the keys; each may also begin with `schema.registry.`. Raises OptionError that names the key."""
        found = {_name(key): text for key, text in properties.items()}
        unknown = [key for key in found if key not in _KNOWN and key not in TLS_KEYS]
        if unknown:
            raise OptionError(f"unknown configuration {min(unknown)} of a schema registry")
        for key, allowed in _SOURCES.items():
            if found.get(key, allowed[0]) not in allowed:
                raise OptionError(f"{key} must be {' or '.join(allowed)}, not {found[key]!r}")
        urls, of_url = _urls(found.get(URL, ""))
        user_info = found.get(USER_INFO) or of_url
        if user_info is not None and ":" not in user_info:
            raise OptionError(f"{USER_INFO} must be NAME:PASSWORD")
        try:
            tls = TlsSettings.from_properties({key: text for key, text in found.items() if key in TLS_KEYS})
        except SecuritySettingError as error:
            raise OptionError(f"schema registry: {error}") from None
        return cls(
            urls,
            None if user_info is None else Password(user_info),
            Password(found[TOKEN]) if TOKEN in found else None,
            tls,
            parse_int(TIMEOUT_MS, found.get(TIMEOUT_MS, "10000"), least=1) / 1000,
        )

    @classmethod
    def from_file(cls, url: str | None, path: str | None) -> Self:
        """Return the settings of a URL and a properties file, either of which may be missing. Raises OptionError."""
        properties: dict[str, str] = {}
        if path is not None:
            try:
                properties = dict(parse_properties(Path(path).read_text(encoding="utf-8")))
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else error
                raise OptionError(f"cannot read {path}: {reason}") from None
        if url is not None:
            properties[URL] = url
        return cls.from_properties(properties)


def _name(key: str) -> str:
    """Return the key without the prefix of Confluent's serializers, except where the prefix belongs to the name."""
    return key if key in (URL, TIMEOUT_MS) else key.removeprefix(PREFIX)


def _urls(text: str) -> tuple[tuple[str, ...], str | None]:
    """Return the URLs without credentials, and the credentials of the first URL that has some. Raises OptionError."""
    urls, user_info = [], None
    for url in (each.strip() for each in text.split(",")):
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"{URL} must be like http://host:8081, not {parts.hostname or text!r}")
        address = parts.netloc.rpartition("@")[2]
        if parts.username is not None and user_info is None:
            user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        urls.append(f"{parts.scheme}://{address}{parts.path.rstrip('/')}")
    return tuple(urls), user_info
