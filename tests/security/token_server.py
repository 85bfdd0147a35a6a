"""A token endpoint and a key set (JWKS) over HTTP or HTTPS, which a test may make fail in many ways."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID, SECRET, SCOPE = "gregor", "planted-secret", "kafka"

Behaviour = Callable[["Handler"], None]


def new_key(name: str) -> RSAKey:
    """Return a new key with this kid."""
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig", "alg": "RS256"})


class TokenServer(ThreadingHTTPServer):
    """The server; `key` signs tokens, and `published` are the keys of the JWKS."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.key = new_key("first")
        self.published = [self.key]
        self.lifetime_s = 3600.0
        self.claims: dict[str, object] = {"aud": "kafka"}
        """Claims of all tokens besides the usual ones; None leaves a claim out."""
        self.requests: list[str] = []
        self.behaviours: list[Behaviour] = []
        """Reactions to the next requests for tokens, in place of answers; the last one stays."""
        self.key_behaviours: list[Behaviour] = []
        """The same for requests for keys."""
        self.scheme = "http"
        self.ended = threading.Event()

    def url(self, path: str) -> str:
        """Return the address of `/token` or `/jwks`."""
        return f"{self.scheme}://localhost:{self.server_port}{path}"

    def token(self, **claims: object) -> str:
        """Return a signed token; claims that are None are left out."""
        now = time.time()
        all_claims = {
            "sub": "olga",
            "iat": now - 1,
            "exp": now + self.lifetime_s,
            "scope": SCOPE,
            **self.claims,
            **claims,
        }
        known = {name: value for name, value in all_claims.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, known, self.key)

    def rotate(self, *, publish: bool = True) -> None:
        """Sign with a new key, published at once or by a later `publish`."""
        self.key = new_key(f"key-{len(self.published)}-{time.time_ns()}")
        if publish:
            self.published = [self.key]

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: clients of these tests leave in the middle of answers."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: TokenServer

    def do_POST(self) -> None:
        """Give a token for client credentials."""
        # A server that closes a connection with unread bytes resets it, and its answer may be lost.
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self._misbehaves():
            return
        login = base64.b64encode(f"{CLIENT_ID}:{SECRET}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {login}":
            self.answer(401, {"error": "invalid_client", "error_description": f"not {SECRET}"})
        elif form.get("grant_type") != ["client_credentials"]:
            self.answer(400, {"error": "unsupported_grant_type"})
        elif form.get("scope", [SCOPE]) != [SCOPE]:
            self.answer(400, {"error": "invalid_scope", "error_description": "no such scope"})
        else:
            self.answer(200, {"access_token": self.server.token(), "token_type": "Bearer"})

    def do_GET(self) -> None:
        """Give the key set."""
        if not self._misbehaves():
            self.answer(200, KeySet(list(self.server.published)).as_dict())

    def _misbehaves(self) -> bool:
        self.server.requests.append(self.path)
        behaviours = self.server.behaviours if self.command == "POST" else self.server.key_behaviours
        if not behaviours:
            return False
        behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        behaviour(self)
        return behaviour is not well

    def answer(self, status: int, value: object, **headers: str) -> None:
        """Send a JSON value."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in headers.items():
            self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def well(handler: Handler) -> None:
    """Answer as a good server."""


def fails(status: int, value: object = b"", **headers: str) -> Behaviour:
    """Return a behaviour: answer with this status and value."""
    return lambda handler: handler.answer(status, value, **headers)


def speaks_ssh(handler: Handler) -> None:
    """Answer in another protocol."""
    handler.wfile.write(b"SSH-2.0-x\r\n")


def hangs(handler: Handler) -> None:
    """Answer nothing."""
    handler.server.ended.wait(60)


def drips(handler: Handler) -> None:
    """Send a header that does not end, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    with contextlib.suppress(OSError):
        while not handler.server.ended.wait(0.05):
            handler.wfile.write(b"x")


def drips_body(handler: Handler) -> None:
    """Send a body a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    with contextlib.suppress(OSError):
        while not handler.server.ended.wait(0.05):
            handler.wfile.write(b" ")


def never_ends(handler: Handler) -> None:
    """Send a body without a length and without an end, at full speed."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
    with contextlib.suppress(OSError):
        while not handler.server.ended.is_set():
            handler.wfile.write(bytes(1 << 16))


@contextmanager
def token_server(context: ssl.SSLContext | None = None) -> Iterator[TokenServer]:
    """Run a server in a thread for the length of a block."""
    server = TokenServer()
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        server.scheme = "https"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()
        server.server_close()
        thread.join()
