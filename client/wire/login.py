"""The SASL login of a connection: on a new trio stream, and again on a live connection."""

from __future__ import annotations

from functools import partial

import trio

from ...protocol.errors import BrokerError, DecodeError
from ...protocol.spoken_versions import SpokenVersions
from ...security.client_login import ClientLogin
from ...security.errors import SaslAuthenticationError
from ...security.tls import tls_refusal
from ..config import ClientConfig
from ..errors import AuthenticationFailedError, ConnectionLostError


async def log_in(stream: trio.abc.Stream, config: ClientConfig) -> float | None:
    """Log in before any other request; return the length of the session in seconds, None if it does not end.

    Raises AuthenticationFailedError with the broker's reason; ConnectionLostError if the broker closes the connection,
    sends malformed answers or exceeds `request.timeout.ms`.
    """
    timeout_s = config.request_timeout_ms / 1000
    try:
        with trio.fail_after(timeout_s):
            return await _log_in(stream, config)
    except (SaslAuthenticationError, BrokerError) as failure:
        raise AuthenticationFailedError(str(failure)) from None
    except DecodeError as fault:
        raise ConnectionLostError(f"malformed answer during the SASL login: {fault}") from None
    except trio.TooSlowError:
        raise ConnectionLostError(f"no answer during the SASL login within {timeout_s:g} s") from None
    except (trio.BrokenResourceError, trio.ClosedResourceError) as failure:
        refusal = tls_refusal(failure.__cause__)
        if refusal is not None:
            raise AuthenticationFailedError(refusal) from None
        raise ConnectionLostError("the broker closed the connection during the SASL login") from None


async def new_login(config: ClientConfig) -> ClientLogin:
    """Return a login, for which a token may have to be fetched. Raises SaslAuthenticationError."""
    security = config.security
    versions = SpokenVersions.pinned(config.api_version) if config.api_version is not None else None
    if security.login_may_block:
        return await trio.to_thread.run_sync(security.client_login, config.client_id, versions, abandon_on_cancel=True)
    return security.client_login(config.client_id, versions)


async def _log_in(stream: trio.abc.Stream, config: ClientConfig) -> float | None:
    login = await new_login(config)
    return await login.run(stream.send_all, partial(_receive, stream), trio.to_thread.run_sync)


async def _receive(stream: trio.abc.Stream, received: bytearray, size: int) -> None:
    """Extend `received` to at least this size."""
    while len(received) < size:
        data = await stream.receive_some()
        if not data:
            raise trio.BrokenResourceError
        received += data
