"""A broker that runs in a thread of the process that uses it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping

import trio

from ..broker.app.broker import Broker as ServedBroker
from ..broker.config import BrokerConfig
from ..command_line.ephemeral import ephemeral_directory
from .failure import START_S, STOP_S, BrokerFailedError


class BrokerThread:
    """A broker with an event loop of its own in a thread of this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._is_settled = threading.Event()
        self._failure: BaseException | None = None
        self._broker: ServedBroker | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self.port = 0
        self._thread = threading.Thread(target=self._run, name="gregor-broker", daemon=True)
        self._thread.start()
        if not self._is_settled.wait(START_S):
            raise BrokerFailedError(f"the broker was not ready after {START_S:g} s")
        if self._failure is not None:
            self._thread.join(STOP_S)
            raise BrokerFailedError(f"the broker could not start: {_innermost(self._failure)}") from self._failure

    def _run(self) -> None:
        try:
            with ephemeral_directory() as directory:
                trio.run(self._serve, BrokerConfig({**self._settings, "log.dirs": str(directory)}))
        except BaseException as failure:
            self._failure = failure
        finally:
            self._is_settled.set()

    async def _serve(self, config: BrokerConfig) -> None:
        broker = ServedBroker(config)
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            self._broker, self._token = broker, trio.lowlevel.current_trio_token()
            self.port = broker.services.serving.listening[0].port
            self._is_settled.set()

    def stop(self) -> None:
        """Stop the broker and wait for its thread. Raises BrokerFailedError."""
        if self._thread.is_alive() and self._token is not None and self._broker is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._broker.stop)
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            raise BrokerFailedError(f"the broker did not stop within {STOP_S:g} s")
        if self._failure is not None:
            raise BrokerFailedError(f"the broker failed: {_innermost(self._failure)}") from self._failure


def _innermost(error: BaseException) -> BaseException:
    return _innermost(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
