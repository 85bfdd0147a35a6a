"""The HTTP server of a driver's metrics: `/metrics` in Prometheus's text format."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from ..errors import OptionError, PipelineError


class Exposition:
    """A registry of metrics, and the server that shows it; a context manager that stops the server."""

    def __init__(self, listener: str | None = None) -> None:
        """Listen at `http://HOST:PORT`, if given; port 0 is any free port.

        Raises OptionError for another URL, PipelineError where nothing can listen.
        """
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError:
            raise PipelineError("metrics need prometheus-client: `pip install 'gregor-broker[spark]'`") from None
        self.registry: Any = CollectorRegistry()
        self._server: Any = None
        if listener is None:
            return
        host, port = _address(listener)
        try:
            self._server, self._thread = start_http_server(port, host, self.registry)
        except OSError as fault:
            raise PipelineError(f"cannot serve metrics at {listener}: {fault.strerror or fault}") from None

    @property
    def port(self) -> int | None:
        """The port of the server, None without one."""
        return None if self._server is None else self._server.server_address[1]

    def text(self) -> str:
        """Return the metrics as the server shows them."""
        from prometheus_client import generate_latest

        shown: str = generate_latest(self.registry).decode()
        return shown

    def close(self) -> None:
        """Stop the server."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None


def _address(listener: str) -> tuple[str, int]:
    parts = urlsplit(listener)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path.strip("/"):
        raise OptionError(f"a listener of metrics is like http://127.0.0.1:9404, not {listener!r}")
    return parts.hostname, port
