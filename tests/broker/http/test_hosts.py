"""Requests that a listener accepts as those of its own pages; DNS rebinding and other sites are refused."""

from __future__ import annotations

import pytest

from gregor.broker.http.hosts import refusal
from gregor.broker.http.messages import HttpRequest


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"host": "localhost:8080"}, None),
        ("GET", {"host": "LocalHost"}, None),
        ("GET", {"host": "127.0.0.1:8080"}, None),
        ("GET", {"host": "[::1]:8080"}, None),
        ("GET", {"host": "kafka.example:8080"}, None),
        ("GET", {"host": "evil.example:8080"}, 421),
        ("GET", {"host": "localhost.evil.example"}, 421),
        ("GET", {"host": "127.0.0.1.evil.example:8080"}, 421),
        ("GET", {"host": ""}, 421),
        ("GET", {}, 421),
        ("GET", {"host": "localhost:1", "sec-fetch-site": "cross-site"}, None),
        ("POST", {"host": "localhost:1"}, None),
        ("POST", {"host": "localhost:1", "origin": "http://localhost:1"}, None),
        ("POST", {"host": "localhost:1", "origin": "http://localhost:1", "sec-fetch-site": "same-origin"}, None),
        ("POST", {"host": "localhost:1", "sec-fetch-site": "none"}, None),
        ("POST", {"host": "localhost:1", "origin": "http://localhost:2"}, 403),
        ("POST", {"host": "localhost:1", "origin": "http://evil.example"}, 403),
        ("POST", {"host": "localhost:1", "origin": "null"}, 403),
        ("POST", {"host": "localhost:1", "sec-fetch-site": "cross-site"}, 403),
        ("POST", {"host": "localhost:1", "sec-fetch-site": "same-site"}, 403),
        ("DELETE", {"host": "evil.example", "origin": "http://evil.example"}, 421),
    ],
)
def test_requests_with_a_foreign_host_or_origin_are_refused(
    method: str, headers: dict[str, str], status: int | None
) -> None:
    response = refusal(HttpRequest(method, "/", headers), {"kafka.example"})
    assert (response and response.status.value) == status
