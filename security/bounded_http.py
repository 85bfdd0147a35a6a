"""HTTP requests whose answers are bounded in time and size: token endpoints and key sets (JWKS).

The standard library's client limits each wait, not their sum: a server that sends one byte at a time would hold it for
ever. Credentials are never sent to the target of a redirect.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from .errors import HttpError
from .login_rules import HttpLimits

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LARGEST_BODY_BYTES = 1 << 20
MOST_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
FINAL_STATUSES = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""Statuses after which Kafka does not try again (``HttpAccessTokenRetriever.UNRETRYABLE_HTTP_CODES``)."""


def fetch(
    url: str,
    limits: HttpLimits,
    *,
    form: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    context: Callable[[], ssl.SSLContext] | None = None,
) -> bytes:
    """Return the body of the answer to a GET of ``url``, or to a POST if there is a ``form``.

    ``context`` makes the TLS context of an https URL. A GET follows redirects within the scheme, as Java does, a POST
    follows none. Raises HttpError.
    """
    address = url
    for _ in range(MOST_REDIRECTS + 1):
        status, location, body = _exchange(address, limits, form, headers or {}, context)
        if status not in REDIRECTS:
            break
        target = urljoin(address, location)
        if form is not None or urlsplit(target).scheme != urlsplit(address).scheme:
            raise HttpError(f"it redirects to {_shown(target)}: set that URL if it is right", is_final=True)
        if urlsplit(target).netloc != urlsplit(address).netloc:
            headers = {}
        address = target
    else:
        raise HttpError(f"more than {MOST_REDIRECTS} redirects", is_final=True)
    if status != http.client.OK:
        raise HttpError(f"HTTP status {status}", is_final=status in FINAL_STATUSES, body=body)
    return body


def _exchange(
    url: str,
    limits: HttpLimits,
    form: bytes | None,
    headers: Mapping[str, str],
    context: Callable[[], ssl.SSLContext] | None,
) -> tuple[int, str, bytes]:
    """Return the status, the header Location and the body of one answer. Raises HttpError."""
    connected: socket.socket | None = None
    try:
        connection, path = _connection(url, limits, context)
        connection.connect()
        connected = connection.sock
        assert connected is not None
        deadline = time.monotonic() + limits.read_s
        connected.settimeout(limits.read_s)
        connection.request("GET" if form is None else "POST", path, form, dict(headers))
        connection.sock = _TimedSocket(connected, deadline)
        answer = connection.getresponse()
        body = answer.read(LARGEST_BODY_BYTES + 1)
        if len(body) > LARGEST_BODY_BYTES:
            raise HttpError(f"an answer of more than {LARGEST_BODY_BYTES} bytes", is_final=True)
        return answer.status, answer.getheader("Location") or "", body
    except TimeoutError:
        if connected is None:
            raise HttpError(f"no connection within {limits.connect_s:g} s") from None
        raise HttpError(f"no answer within {limits.read_s:g} s") from None
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason or "the TLS connection ended"
        raise HttpError(f"SSL handshake failed: {reason}") from None
    except OSError as error:
        raise HttpError(error.strerror or str(error) or "the server closed the connection") from None
    except (http.client.HTTPException, ValueError) as error:
        raise HttpError(f"no HTTP answer: {type(error).__name__}") from None
    finally:
        if connected is not None:
            connected.close()


def _connection(
    url: str, limits: HttpLimits, context: Callable[[], ssl.SSLContext] | None
) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection that is not open yet, and the path to ask for. Raises ValueError for a malformed URL."""
    parts = urlsplit(url)
    host, path = parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme != "https":
        return http.client.HTTPConnection(host, parts.port, timeout=limits.connect_s), path
    tls = ssl.create_default_context() if context is None else context()
    return http.client.HTTPSConnection(host, parts.port, timeout=limits.connect_s, context=tls), path


def _shown(url: str) -> str:
    """Return a URL of a server in a form for one line of a log, without credentials."""
    parts = urlsplit(url)
    return ascii(f"{parts.scheme}://{parts.hostname}{parts.path}"[:200])[1:-1]


class _TimedSocket:
    """A socket from which `http.client` reads an answer until a deadline on the monotonic clock, and never closes."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._reader = _TimedReader(connected, deadline)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a buffered reader of the socket."""
        assert mode == "rb"
        return io.BufferedReader(self._reader)

    def close(self) -> None:
        """Do nothing: `http.client` closes the socket before it has read the answer."""


class _TimedReader(io.RawIOBase):
    """The bytes of a socket until a deadline on the monotonic clock."""

    def __init__(self, connected: socket.socket, deadline: float) -> None:
        self._socket = connected
        self._deadline = deadline

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, space: WriteableBuffer) -> int:
        """Read some bytes. Raises TimeoutError after the deadline."""
        rest_s = self._deadline - time.monotonic()
        if rest_s <= 0:
            raise TimeoutError
        self._socket.settimeout(rest_s)
        return self._socket.recv_into(space)
