"""OAUTHBEARER from end to end: our client fetches tokens from a server whose key set the broker reads."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from gregor.broker.app.broker import Broker
from gregor.broker.config import BrokerConfig
from gregor.client import Admin
from gregor.client.errors import AuthenticationFailedError, ClientError
from tests.broker.authentication.secured_broker import OAUTH_MODULE
from tests.security.token_server import CLIENT_ID, SCOPE, SECRET, TokenServer, fails, token_server, well


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as running:
        yield running


@pytest.fixture
async def address(tmp_path: Path, nursery: trio.Nursery, server: TokenServer) -> AsyncIterator[str]:
    """Provide the address of a broker that accepts tokens of the server."""
    # The first two readings fail.
    server.key_behaviours = [fails(503), fails(200, b"no JSON"), well]
    broker = Broker(
        BrokerConfig(
            {
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "log.dirs": str(tmp_path / "logs"),
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": server.url("/jwks"),
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "10",
                "sasl.oauthbearer.expected.audience": "kafka,other",
                "connection.failed.authentication.delay.ms": "0",
                "gregor.shutdown.timeout.ms": "0",
            }
        )
    )
    await nursery.start(broker.run)
    yield f"127.0.0.1:{broker.services.serving.listening[0].port}"
    nursery.cancel_scope.cancel()


async def logs_in(address: str, server: TokenServer) -> bool:
    """Return whether a new client with a new token may ask."""
    options = f'clientId="{CLIENT_ID}" clientSecret="{SECRET}" scope="{SCOPE}"'
    settings = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": f"{OAUTH_MODULE} required {options};",
        "sasl_oauthbearer_token_endpoint_url": server.url("/token"),
        "sasl_login_retry_backoff_max_ms": "0",
        "default_api_timeout_ms": "2000",
    }
    async with Admin(address, **settings) as admin:
        try:
            await admin.describe_cluster()
        except AuthenticationFailedError as error:
            if "invalid_token" in str(error):
                return False
            raise
    return True


async def logs_in_soon(address: str, server: TokenServer) -> None:
    """Return once a client may ask: the broker reads the keys again after a token named an unknown one."""
    with trio.fail_after(60):
        while not await logs_in(address, server):  # noqa: ASYNC110 (the broker tells nobody)
            await trio.sleep(0.2)


async def test_tokens_are_checked_by_the_keys_that_are_published(address: str, server: TokenServer) -> None:
    await logs_in_soon(address, server)
    wrong: list[dict[str, object]] = [{"exp": time.time() - 60}, {"aud": "else"}, {"aud": None}, {"sub": ""}]
    for claims in wrong:
        server.claims = claims
        assert not await logs_in(address, server), claims
    server.claims = {"aud": ["kafka", "third"]}
    assert await logs_in(address, server)
    # A new key is published before tokens name it, or only after that.
    server.rotate()
    await logs_in_soon(address, server)
    server.rotate(publish=False)
    assert not await logs_in(address, server)
    server.published = [server.key]
    await logs_in_soon(address, server)


async def test_a_client_whose_token_request_fails_reports_the_token_endpoint(address: str, server: TokenServer) -> None:
    server.behaviours = [fails(400, {"error": "invalid_scope"})]
    with pytest.raises(ClientError, match=r"no token from http://localhost:\d+/token: HTTP status 400, invalid_scope"):
        await logs_in(address, server)
