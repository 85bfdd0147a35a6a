"""Google Cloud Storage's XML interface, as far as it is S3's: the S3 server of the tests behind Google's headers.

The emulators in registries have only the JSON interface, which obstore does not use.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.pipeline.s3_server import S3Server

AUTHORIZATION = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""The header by which the S3 server knows somebody, in place of the token that Google's clients send."""


class GoogleServer(S3Server):
    """A server that translates the headers in which the two interfaces differ."""

    def __init__(self) -> None:
        super().__init__()
        s3 = self._app

        def translated(request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
            request["HTTP_AUTHORIZATION"] = AUTHORIZATION
            if request.pop("HTTP_X_GOOG_IF_GENERATION_MATCH", None) == "0":
                request["HTTP_IF_NONE_MATCH"] = "*"
            if source := request.pop("HTTP_X_GOOG_COPY_SOURCE", None):
                request["HTTP_X_AMZ_COPY_SOURCE"] = source

            # Google's clients escape the slashes in names of objects, too.
            path = quote(request["PATH_INFO"].encode("latin-1"))
            request["RAW_URI"] = request["REQUEST_URI"] = f"{path}?{request['QUERY_STRING']}"

            def with_generation(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
                return start(status, [*headers, ("x-goog-generation", "1")], *more)

            answer: Iterable[bytes] = s3(request, with_generation)
            return answer

        self._app = translated

    @property
    def endpoint(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.port}"

    def write_key(self, path: Path) -> None:
        """Write a file of a service account that signs nothing."""
        account = {"gcs_base_url": self.endpoint, "disable_oauth": True, "client_email": "", "private_key": ""}
        path.write_text(json.dumps({**account, "private_key_id": ""}))


@contextlib.contextmanager
def google_server() -> Iterator[GoogleServer]:
    """Run a server."""
    server = GoogleServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
