"""Keys, classes and header versions of the APIs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gregor.protocol.apis import (
    ApiKey,
    is_flexible,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
    valid_versions,
)


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_request_and_response_have_the_same_versions(key: ApiKey) -> None:
    request, response = request_class(key), response_class(key)
    assert request.__module__ == response.__module__
    assert valid_versions(key) == (request.VERSIONS.first, request.VERSIONS.last)
    assert (response.VERSIONS.first, response.VERSIONS.last) == valid_versions(key)
    first, last = valid_versions(key)
    for version in range(first, last + 1):
        assert (version in request.FLEXIBLE) == (version in response.FLEXIBLE) == is_flexible(key, version)


def test_flexible_versions_have_flexible_headers() -> None:
    assert [request_header_version(ApiKey.FETCH, version) for version in (0, 11, 12, 17)] == [1, 1, 2, 2]
    assert [response_header_version(ApiKey.FETCH, version) for version in (0, 11, 12, 17)] == [0, 0, 1, 1]


def test_controlled_shutdown_and_api_versions_have_exceptional_header_versions() -> None:
    assert [request_header_version(ApiKey.CONTROLLED_SHUTDOWN, version) for version in range(4)] == [0, 1, 1, 2]
    assert [request_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [1, 1, 1, 2, 2]
    assert [response_header_version(ApiKey.API_VERSIONS, version) for version in range(5)] == [0] * 5


def test_messages_are_imported_when_their_api_is_first_asked_for() -> None:
    script = (
        "import sys; from gregor.protocol.apis import ApiKey, request_class;"
        "request_class(ApiKey.FETCH);"
        "print([name for name in sys.modules if name.startswith('gregor.protocol.messages.')])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "['gregor.protocol.messages.fetch']"
