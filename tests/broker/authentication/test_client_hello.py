"""Clients that speak TLS to a listener without TLS: they are disconnected, and the log says which keys to check."""

from __future__ import annotations

import contextlib
import ssl
import struct

import pytest
import trio

from gregor.broker.server.client_hello import is_client_hello
from tests.broker.authentication.secured_broker import SecuredBroker
from tests.waiting import PATIENCE_S, eventually


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_the_log_says_that_the_client_speaks_tls(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture, listener: str, version: ssl.TLSVersion
) -> None:
    """Instead of an invalid size of 369295616 bytes and more, as Kafka logs it."""
    caplog.set_level("INFO")
    context = ssl.create_default_context(cafile=secured.trusted)
    context.minimum_version = context.maximum_version = version
    stream = trio.SSLStream(
        await trio.open_tcp_stream("127.0.0.1", secured.port(listener)), context, server_hostname="localhost"
    )
    with trio.fail_after(PATIENCE_S), pytest.raises(trio.BrokenResourceError):
        await stream.do_handshake()
    await trio.aclose_forcefully(stream)
    words = f"the client speaks TLS, but the security protocol of listener {listener} is {listener}. Check listeners "
    await eventually(lambda: words in caplog.text)
    assert "listener.security.protocol.map, or security.protocol of the client" in caplog.text
    assert "bytes, the limit is" not in caplog.text


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SASL_PLAINTEXT"])
async def test_other_invalid_sizes_are_logged_as_they_are(
    secured: SecuredBroker, caplog: pytest.LogCaptureFixture, listener: str
) -> None:
    caplog.set_level("INFO")
    stream = await trio.open_tcp_stream("127.0.0.1", secured.port(listener))
    async with stream:
        await stream.send_all(b"GET / HTTP/1.1\r\n\r\n")
        with trio.fail_after(PATIENCE_S):
            with contextlib.suppress(trio.BrokenResourceError):
                assert await stream.receive_some() == b""
    await eventually(lambda: "frame of 1195725856 bytes" in caplog.text)
    assert "TLS" not in caplog.text


@pytest.mark.parametrize(
    ("first", "is_hello"),
    [
        (b"\x16\x03\x01\x02", True),
        (b"\x16\x03\x00\x00", True),
        (b"\x16\x03\x03\x40", True),
        (b"\x15\x03\x03\x00", False),
        (b"\x16\x02\x01\x02", False),
        (b"\x16\x03\x05\x02", False),
        (b"\x96\x03\x01\x02", False),
        (b"\xff\xff\xff\xff", False),
        (b"GET ", False),
    ],
)
def test_only_a_handshake_of_a_known_version_is_a_client_hello(first: bytes, is_hello: bool) -> None:
    assert is_client_hello(*struct.unpack(">i", first)) is is_hello
