"""The console's site: pages by path, templates, and the token by which forms are known to be the console's own."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ...broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from ...client.errors import ClientError
from ...protocol.errors import BrokerError, ErrorCode
from . import units
from .values import visible

FOLDER = Path(__file__).parent
HTML = "text/html; charset=utf-8"
ASSET_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
ANY = "*"
MOST_NOTICES = 100
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer, with which browsers send "Origin: null" with a form.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NOT_FOUND_CODES = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)


class RefusedError(Exception):
    """An error for a request that the console refuses; the text is for the user."""

    def __init__(self, text: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Visit:
    """One request: the pieces of its path that a route leaves open, and the fields of its query or form."""

    names: tuple[str, ...]
    fields: Mapping[str, str]

    def text(self, name: str, default: str = "") -> str:
        """Return a field without blanks around it."""
        return self.fields.get(name, default).strip()

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """Return a field as a whole number. Raises RefusedError."""
        text = self.text(name)
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            raise RefusedError(f"{name} must be a whole number, not {text[:100]!r}") from None
        if not least <= number <= most:
            raise RefusedError(f"{name} must be from {least} to {most}")
        return number

    def is_set(self, name: str) -> bool:
        """Return whether a box is checked."""
        return name in self.fields


Page = Callable[[Visit], Awaitable[HttpResponse]]


class Site:
    """The pages by path, and what they share: templates, notices and the token of forms."""

    def __init__(self, *, read_only: bool, shared: Mapping[str, Any]) -> None:
        self._routes: list[tuple[str, tuple[str, ...], Page]] = []
        self._read_only = read_only
        self._token = secrets.token_urlsafe(16)
        self._notices: OrderedDict[str, str] = OrderedDict()
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            finalize=_harmless,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "bytes": units.byte_text,
            "time": units.time_text,
            "age": units.age_text,
            "count": lambda number: f"{number:,}",
            "segment": lambda text: quote(str(text), safe=""),
        }
        self._templates.globals |= {"token": self._token, "read_only": read_only, "link": link, **shared}

    def get(self, *path: str) -> Callable[[Page], Page]:
        """Return a decorator that makes a function the page of a path, in which `ANY` stands for any piece."""
        return self._route("GET", path)

    def post(self, *path: str) -> Callable[[Page], Page]:
        """Return a decorator that makes a function the answer to forms that are sent to a path."""
        return self._route("POST", path)

    def _route(self, method: str, path: tuple[str, ...]) -> Callable[[Page], Page]:
        def add(page: Page) -> Page:
            self._routes.append((method, path, page))
            return page

        return add

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; an error of the cluster becomes a page."""
        try:
            response = await self._answer(request)
        except RefusedError as error:
            response = self._failure(error.status, str(error))
        except BrokerError as error:
            refused = HTTPStatus.BAD_REQUEST if request.method == "POST" else HTTPStatus.BAD_GATEWAY
            status = HTTPStatus.NOT_FOUND if error.code in NOT_FOUND_CODES else refused
            response = self._failure(
                status, f"{error.message} ({error.code.name})" if error.message else error.code.name
            )
        except ClientError as error:
            response = self._failure(HTTPStatus.BAD_GATEWAY, str(error))
        headers = {**SECURITY_HEADERS, **response.headers}
        return HttpResponse(response.status, response.body, response.content_type, headers)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        method = "GET" if request.method == "HEAD" else request.method
        segments = request.segments
        if segments[:1] == ("assets",) and method == "GET":
            return _asset(segments[1:])
        for routed_method, path, page in self._routes:
            if routed_method == method and _fits(path, segments):
                names = tuple(piece for wanted, piece in zip(path, segments, strict=True) if wanted == ANY)
                return await page(Visit(names, self._fields(request, method)))
        raise RefusedError("there is no such page", HTTPStatus.NOT_FOUND)

    def _fields(self, request: HttpRequest, method: str) -> dict[str, str]:
        """Return the fields of the query, or of a form with the right token. Raises RefusedError, BadRequestError."""
        if method == "GET":
            return request.query()
        try:
            fields = request.form()
        except BadRequestError as error:
            raise RefusedError(str(error)) from None
        if self._read_only:
            raise RefusedError("this console is read-only: gregor.console.read.only is set", HTTPStatus.FORBIDDEN)
        if not hmac.compare_digest(fields.get("token", "").encode(), self._token.encode()):
            raise RefusedError("the form has expired: load the page again and repeat", HTTPStatus.FORBIDDEN)
        return fields

    def page(
        self, template: str, visit: Visit | None = None, status: HTTPStatus = HTTPStatus.OK, **values: Any
    ) -> HttpResponse:
        """Return a page made from a template, with the notice that the visit names, if any."""
        notice = self._notices.pop(visit.text("notice"), None) if visit is not None else None
        text = self._templates.get_template(template).render(notice=notice, **values)
        return HttpResponse(status, text.encode("utf-8", "replace"), HTML)

    def done(self, notice: str, target: str) -> HttpResponse:
        """Return a redirection to a page, which will show a notice once."""
        name = secrets.token_urlsafe(6)
        self._notices[name] = notice
        while len(self._notices) > MOST_NOTICES:
            self._notices.popitem(last=False)
        joint = "&" if "?" in target else "?"
        return HttpResponse(HTTPStatus.SEE_OTHER, headers={"Location": f"{target}{joint}notice={name}"})

    def _failure(self, status: HTTPStatus, text: str) -> HttpResponse:
        return self.page("failure.html", status=status, title=status.phrase, text=text)


def link(*path: object, **query: object) -> str:
    """Return a path of the site from its pieces, with a query of the fields that are not None or empty."""
    target = "/" + "/".join(quote(str(piece), safe="") for piece in path)
    fields = {name.rstrip("_"): value for name, value in query.items() if value is not None and value != ""}
    return f"{target}?{urlencode(fields)}" if fields else target


def _harmless(value: object) -> object:
    """Return a text of a client, a record or the user without characters that hide or turn text around it."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _fits(path: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    return len(path) == len(segments) and all(
        wanted in (ANY, piece) for wanted, piece in zip(path, segments, strict=True)
    )


def _asset(segments: tuple[str, ...]) -> HttpResponse:
    """Return a file of the package. Raises RefusedError for any other name."""
    known = {path.name: path for path in (FOLDER / "assets").iterdir() if path.suffix in ASSET_TYPES}
    path = known.get(segments[0]) if len(segments) == 1 else None
    if path is None:
        raise RefusedError("there is no such file", HTTPStatus.NOT_FOUND)
    headers = {"Cache-Control": "max-age=60"}
    return HttpResponse(HTTPStatus.OK, path.read_bytes(), ASSET_TYPES[path.suffix], headers)
