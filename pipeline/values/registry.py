"""The client of a schema registry: schemas by id and by subject, kept in bounded memory.

Source: Confluent Schema Registry API reference, `/schemas/ids/{id}` and `/subjects/{subject}/versions/{version}`;
Karapace and Apicurio serve the same paths.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from ...security.bounded_http import fetch
from ...security.errors import HttpError
from ...security.login_rules import HttpLimits, RetryRules
from ..errors import RegistryError
from .registry_settings import RegistrySettings

ACCEPTED = "application/vnd.schemaregistry.v1+json, application/json"
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
MOST_SCHEMAS = 1000
"""The number of schemas that a process keeps; the least recently used ones are forgotten."""
MOST_REFERENCES = 64
"""The number of schemas that one schema may refer to, directly or not."""
FORGET_UNKNOWN_S = 30.0
"""The time after which an unknown id is looked up again."""
NOT_FOUND_CODES = (40401, 40402, 40403)
LATEST = "latest"

Key = TypeVar("Key")
Value = TypeVar("Value")


class SchemaKind(StrEnum):
    """The language of a schema, as the registry names it."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class UnknownSchemaError(ValueError):
    """An id, subject or version that the registry does not have."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, with the schemas that it refers to by name; `number` is its id, -1 for a referenced one."""

    number: int
    kind: SchemaKind
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class BoundedCache(Generic[Key, Value]):
    """A mapping of at most `limit` entries; a new one replaces the least recently used."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value, or None."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: Key, value: Value) -> None:
        """Add or replace a value."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)


class Registry:
    """A client of a registry for one process. With `shared_registry` all tasks of a process share its schemas."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self._limits = HttpLimits(settings.timeout_s, settings.timeout_s)
        self._retry = RetryRules()
        self._by_number: BoundedCache[int, RegisteredSchema] = BoundedCache(MOST_SCHEMAS)
        self._unknown: BoundedCache[int, float] = BoundedCache(MOST_SCHEMAS)
        self._referenced: BoundedCache[str, dict[str, Any]] = BoundedCache(MOST_SCHEMAS)
        self._first_url = 0
        self._context: ssl.SSLContext | None = None

    def schema(self, number: int) -> RegisteredSchema:
        """Return the schema of an id. Raises UnknownSchemaError, RegistryError."""
        found = self._by_number.get(number)
        if found is not None:
            return found
        unknown_since = self._unknown.get(number)
        if unknown_since is not None and time.monotonic() - unknown_since < FORGET_UNKNOWN_S:
            raise UnknownSchemaError(f"the registry has no schema {number}")
        try:
            answer = self._ask(f"/schemas/ids/{number}")
        except UnknownSchemaError:
            self._unknown.put(number, time.monotonic())
            raise
        found = self._parsed(number, answer, [])
        self._by_number.put(number, found)
        return found

    def latest(self, subject: str, version: str = LATEST) -> RegisteredSchema:
        """Return a version of a subject, by default the latest. Raises UnknownSchemaError, RegistryError."""
        answer = self._ask(_version_path(subject, version))
        number = answer.get("id")
        return self._parsed(number if isinstance(number, int) else -1, answer, [])

    def register(self, subject: str, kind: SchemaKind, text: str) -> RegisteredSchema:
        """Add a schema to a subject, unless the subject has it; return it. Raises RegistryError."""
        return self._told(f"/subjects/{quote(subject, safe='')}/versions", kind, text)

    def lookup(self, subject: str, kind: SchemaKind, text: str) -> RegisteredSchema:
        """Return the schema of a subject that has this text. Raises UnknownSchemaError, RegistryError."""
        return self._told(f"/subjects/{quote(subject, safe='')}", kind, text)

    def _told(self, path: str, kind: SchemaKind, text: str) -> RegisteredSchema:
        told = {"schema": text} if kind is SchemaKind.AVRO else {"schema": text, "schemaType": str(kind)}
        number = self._ask(path, json.dumps(told).encode()).get("id")
        if not isinstance(number, int):
            raise RegistryError(f"{self._settings.shown_url}: an answer without the id of a schema")
        return self.schema(number)

    def _parsed(self, number: int, answer: Mapping[str, Any], above: list[str]) -> RegisteredSchema:
        try:
            kind = SchemaKind(answer.get("schemaType") or SchemaKind.AVRO)
            text = str(answer["schema"])
            references = []
            for each in answer.get("references") or ():
                path = _version_path(str(each["subject"]), str(each["version"]))
                if len(above) >= MOST_REFERENCES or path in above:
                    raise RegistryError(f"schema {number} refers to too many schemas, or to itself")
                above.append(path)
                told = self._referenced.get(path)
                if told is None:
                    told = self._ask(path)
                    self._referenced.put(path, told)
                references.append((str(each["name"]), self._parsed(-1, told, above)))
        except (KeyError, TypeError, ValueError) as fault:
            if isinstance(fault, UnknownSchemaError):
                raise
            raise RegistryError(f"{self._settings.shown_url}: an answer that is no schema: {fault}") from None
        return RegisteredSchema(number, kind, text, tuple(references))

    def _ask(self, path: str, told: bytes | None = None) -> dict[str, Any]:
        """Return the JSON object of the answer to a GET, or to a POST of `told`.

        Each URL is tried until `RetryRules.most_s` have passed. Raises UnknownSchemaError, RegistryError.
        """
        deadline = time.monotonic() + self._retry.most_s
        pause_s = self._retry.backoff_s
        while True:
            failure: HttpError | None = None
            for turn in range(len(self._settings.urls)):
                index = (self._first_url + turn) % len(self._settings.urls)
                url = self._settings.urls[index]
                try:
                    body = fetch(url + path, self._limits, form=told, headers=self._headers(), context=self._tls)
                except HttpError as error:
                    if error.is_final:
                        raise self._refusal(url, path, error) from None
                    failure = error
                else:
                    self._first_url = index
                    return _object(url, body)
            if time.monotonic() + pause_s > deadline:
                raise RegistryError(f"schema registry {self._settings.shown_url}: {failure}") from None
            time.sleep(pause_s)
            pause_s *= 2

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": ACCEPTED, "Content-Type": CONTENT_TYPE}
        if self._settings.user_info is not None:
            named = base64.b64encode(self._settings.user_info.value.encode()).decode()
            headers["Authorization"] = f"Basic {named}"
        elif self._settings.token is not None:
            headers["Authorization"] = f"Bearer {self._settings.token.value}"
        return headers

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = self._settings.tls.client_context()
        return self._context

    def _refusal(self, url: str, path: str, error: HttpError) -> Exception:
        """Return the error for an answer that another attempt does not change."""
        try:
            told = json.loads(error.body)
            code, message = told["error_code"], str(told["message"])
        except (ValueError, TypeError, KeyError):
            return RegistryError(f"schema registry {url}{path}: {error}")
        if code in NOT_FOUND_CODES:
            return UnknownSchemaError(f"the registry has no {path.removeprefix('/')}: {message}")
        return RegistryError(f"schema registry {url}{path}: {error}: {message}")


@lru_cache(maxsize=8)
def shared_registry(settings: RegistrySettings) -> Registry:
    """Return the client of this process for the settings, which keeps its schemas from task to task."""
    return Registry(settings)


def _version_path(subject: str, version: str) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{quote(version, safe='')}"


def _object(url: str, body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise RegistryError(f"{url}: no answer of a schema registry")
    return answer
