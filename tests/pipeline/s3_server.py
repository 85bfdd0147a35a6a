"""An S3 server in this process (moto), which fails, stalls or loses answers as a test says."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from gregor.pipeline.filesystems.locations import location
from gregor.pipeline.filesystems.remote_path import RemotePath

Fault = Callable[[dict[str, Any]], str | None]
"""A function of a request's WSGI environment that returns what to do.

None, "refuse", "lose", "slow down", "hang" or "cut".

A request that hangs is not carried out; its connection is closed without an answer when the server is told so. An
answer that is cut has half its body.
"""

HANGS_S = 60.0
"""The longest time for which a request hangs, so that a test that fails ends."""
STATUSES = {"refuse": "500 Internal Server Error", "slow down": "503 Slow Down", "lose": "500 Internal Server Error"}


class S3Server:
    """A running S3 server with one bucket. `fault` decides about each request; `requests` counts them."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._app = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.fault: Fault = lambda request: None
        self.faults = 0
        self.released = threading.Event()
        """Ends the requests that hang."""
        self.requests: list[str] = []
        self.bucket = f"lake-{uuid.uuid4().hex}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which clients find the server."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._server.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
        }

    def root(self, name: str = "lake") -> RemotePath:
        """Return a folder of the bucket."""
        found = location(f"s3a://{self.bucket}/{name}")
        assert isinstance(found, RemotePath)
        return found

    def start(self) -> None:
        """Start to answer, and make the bucket."""
        import urllib.request

        self._thread.start()
        address = f"http://127.0.0.1:{self._server.port}/{self.bucket}"
        with urllib.request.urlopen(urllib.request.Request(address, method="PUT")):
            pass

    def stop(self) -> None:
        """Stop to answer."""
        self.released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        self.requests.append(f"{request['REQUEST_METHOD']} {request['PATH_INFO']}?{request['QUERY_STRING']}")
        fault = self.fault(request)
        if fault is None:
            answer: Iterable[bytes] = self._app(request, start)
            return answer
        self.faults += 1
        if fault == "hang":
            self.released.wait(HANGS_S)
            raise ConnectionError("this request hung")
        if fault == "cut":
            return self._half(request, start)
        body = request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        if fault == "lose":
            import io

            b"".join(self._app({**request, "wsgi.input": io.BytesIO(body)}, lambda *given: lambda data: None))
        start(STATUSES[fault], [("Content-Length", "0")])
        return []

    def _half(self, request: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        body = b"".join(self._app(request, start))
        yield body[: len(body) // 2]
        raise ConnectionError("this answer was cut")


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server, which this process and those that it starts find by their environment."""
    server = S3Server()
    server.start()
    try:
        with mock.patch.dict(os.environ, server.environment):
            yield server
    finally:
        server.stop()
