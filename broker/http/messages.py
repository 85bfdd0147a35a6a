"""Requests and responses as handlers see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

MAX_FIELDS = 200
"""Most fields of a query or a form."""
PLAIN_TEXT = "text/plain; charset=utf-8"


class BadRequestError(ValueError):
    """An error for a request that a handler cannot read; its text is sent to the client with status 400."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request with its whole body."""

    method: str
    target: str
    """The path as it was sent, with percent-encoding and query."""
    headers: Mapping[str, str]
    """Values by lower-case name; repeated headers are joined by commas (RFC 9110, 5.3)."""
    body: bytes = b""

    @property
    def path(self) -> str:
        """The path without query, still percent-encoded."""
        return self.target.partition("?")[0]

    @property
    def segments(self) -> tuple[str, ...]:
        """The decoded pieces of the path between slashes; an encoded slash does not separate."""
        return tuple(unquote(piece) for piece in self.path.split("/") if piece)

    def query(self) -> dict[str, str]:
        """Return the fields of the query; the last one counts. Raises BadRequestError for too many fields."""
        return _fields(self.target.partition("?")[2])

    def form(self) -> dict[str, str]:
        """Return the fields of an ``application/x-www-form-urlencoded`` body; the last one of a name counts.

        Raises BadRequestError for a body of another type, or for too many fields.
        """
        if self.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
            raise BadRequestError("the body is not application/x-www-form-urlencoded")
        return _fields(self.body.decode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An answer to one request."""

    status: HTTPStatus
    body: bytes | AsyncGenerator[bytes, None] = b""
    """The body, whole or in pieces; pieces are sent as they come, so that a large body is never in memory at once."""
    content_type: str = PLAIN_TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers."""


HttpHandler = Callable[[HttpRequest], Awaitable[HttpResponse]]


def plain_text(status: HTTPStatus, text: str) -> HttpResponse:
    """Return a response of one line of text."""
    return HttpResponse(status, f"{text}\n".encode())


def _fields(encoded: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(encoded, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise BadRequestError(f"more than {MAX_FIELDS} fields") from None
