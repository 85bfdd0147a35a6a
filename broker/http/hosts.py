"""Protection of pages that change something or show data: against DNS rebinding and requests of other sites' pages.

A page of another site can make a user's browser send requests to a listener on the user's machine. The header ``Host``
of such a request has the site's name if the site has made its name resolve to this machine (DNS rebinding). ``Origin``
or ``Sec-Fetch-Site`` (https://www.w3.org/TR/fetch-metadata/) say which site the page is from.
"""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus
from ipaddress import ip_address

from .messages import HttpRequest, HttpResponse, plain_text

LOOPBACK_NAME = "localhost"
SAFE_METHODS = frozenset({"GET", "HEAD"})


def refusal(request: HttpRequest, names: Collection[str]) -> HttpResponse | None:
    """Return the answer to a request that must not be served, or None.

    ``names`` are the host names, in lower case, by which this listener is known. Addresses and localhost always are: no
    page of another site has such an origin, as DNS rebinding needs a name.
    """
    host = request.headers.get("host", "")
    name = _host_name(host)
    if not (name in names or name == LOOPBACK_NAME or _is_address(name)):
        text = f"this listener is not known as {name!r}: use an address or localhost, or configure that name"
        return plain_text(HTTPStatus.MISDIRECTED_REQUEST, text)
    if request.method not in SAFE_METHODS and not _is_from_own_page(request, host):
        return plain_text(HTTPStatus.FORBIDDEN, "a page of another site made this request")
    return None


def _is_from_own_page(request: HttpRequest, host: str) -> bool:
    """Return whether a page of this listener, or no page at all, made a request; old browsers send Origin only."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or origin.lower() in (f"http://{host.lower()}", f"https://{host.lower()}")


def _host_name(host: str) -> str:
    """Return the name or address of a Host header without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
