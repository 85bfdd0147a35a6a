"""The broker of a process over its whole life, in which other code may stop it, change its files and start it again."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ..config import BrokerConfig
from .broker import Broker

logger = logging.getLogger(__name__)

KEYS_OF_THE_FIRST_START = ("gregor.create.topics", "gregor.load")
"""Keys that a restarted broker ignores: its files hold what they should hold."""


class RestartRefusedError(Exception):
    """An error for a restart that cannot begin now; the text says why."""


class _Restart:
    """A restart that was asked for and has not ended."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.change = change
        self.failure: Exception | None = None
        self.done = trio.Event()


class BrokerLifetime:
    """A broker that `run` keeps running, also over restarts within the process."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._pending: _Restart | None = None
        self._is_ending = False
        self.broker = Broker(config)
        """The broker that runs now; another one after each restart."""

    @property
    def is_ready(self) -> bool:
        """Whether the broker serves clients now."""
        return self.broker.services.serving.is_ready

    async def run(self, started: Callable[[], None]) -> None:
        """Run the broker until `stop`, and call `started` at its first start. Raises as `Broker.run`."""
        await self._run_once(started)
        while self._pending is not None and not self._is_ending:
            try:
                await trio.to_thread.run_sync(self._pending.change)
            except Exception as failure:
                self._pending.failure = failure
            self._config = _for_restart(self._config, self.broker)
            self.broker = Broker(self._config)
            await self._run_once(self._restarted)

    async def _run_once(self, started: Callable[[], None]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.broker.run)
            started()

    def _restarted(self) -> None:
        if self._pending is not None:
            self._pending.done.set()
            self._pending = None
        logger.info("gregor serves clients again")

    async def restart(self, change: Callable[[], None]) -> None:
        """Stop the broker in order, call `change` in a worker thread, and start the broker again on the same ports.

        Returns once clients are served again. Raises what `change` raised, and RestartRefusedError.
        """
        if self._pending is not None or not self.is_ready:
            raise RestartRefusedError("the broker is being stopped or started: try again")
        pending = self._pending = _Restart(change)
        self.broker.stop()
        await pending.done.wait()
        if pending.failure is not None:
            raise pending.failure

    def stop(self) -> None:
        """Make `run` end; a restart that is under way ends with the broker stopped."""
        self._is_ending = True
        if self.is_ready:
            self.broker.stop()


def _for_restart(config: BrokerConfig, broker: Broker) -> BrokerConfig:
    """Return a configuration with the ports that the broker has, which may have been free to choose."""
    kept = {name: text for name, text in config.properties.items() if name not in KEYS_OF_THE_FIRST_START}
    controllers = {name.upper() for name in config.controller_listener_names or ()}
    others = [text for text in config.listeners if text.partition("://")[0].strip().upper() in controllers]
    kept["listeners"] = ",".join([*map(str, broker.services.serving.listening), *others])
    if config.gregor_metrics_listener:
        kept["gregor.metrics.listener"] = str(broker.services.serving.metrics_address)
    return BrokerConfig(kept)
