"""The check of `gregor healthcheck --command-config`: a connection with TLS and a login."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..client.config import AdminConfig
from ..client.errors import ClientError
from ..client.metrics import Metrics
from ..client.wire.connection import Connection
from ..client.wire.dialling import open_stream
from .asking import read_client_properties


def secured_check(config_path: str) -> Callable[[tuple[str, int], float], None]:
    """Return a check that connects as a properties file says.

    Raises UsageError or ConfigError for a file that is wrong. The check takes an address and a time limit in seconds;
    it raises OSError if the broker does not answer or refuses the client.
    """
    config = AdminConfig.from_properties(read_client_properties(config_path))

    async def connect(address: tuple[str, int], timeout_s: float) -> None:
        with trio.fail_after(timeout_s):
            stream = await open_stream(*address, config)
            connection = Connection(stream, f"{address[0]}:{address[1]}", config, Metrics())
            async with trio.open_nursery() as nursery:
                await nursery.start(connection.run)
                nursery.cancel_scope.cancel()

    def check(address: tuple[str, int], timeout_s: float) -> None:
        try:
            trio.run(connect, address, timeout_s)
        except trio.TooSlowError:
            raise OSError(f"no answer within {timeout_s:g} s") from None
        except ClientError as error:
            raise OSError(str(error)) from None
        except BaseExceptionGroup as group:
            if group.split(ClientError)[1] is not None:
                raise
            raise OSError(str(group.exceptions[0])) from None

    return check
