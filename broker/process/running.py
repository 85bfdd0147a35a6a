"""One service in one process, from its first log line to its exit status."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TextIO, TypeVar

import trio

from ...protocol.errors import BrokerError
from ...storage.disk.log_directory import StorageUnavailableError
from ..config import BrokerConfig, ConfigError
from ..config.listeners import ListenerError
from ..monitoring.loggers import LEVELS
from .allocator import limit_kept_memory

logger = logging.getLogger(__name__)

ONE_LINE_FAILURES = (ListenerError, StorageUnavailableError, ConfigError, BrokerError)
"""Errors that keep a service from starting or continuing; each is printed as one line."""
LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
GARBAGE_THRESHOLD = 20_000
"""Allocations between two garbage collections: requests make few cycles, and a collection delays every request."""


S = TypeVar("S", bound="Service")


class Service(Protocol):
    """A service that a process runs until a signal stops it."""

    @property
    def is_ready(self) -> bool:
        """Whether clients are served."""

    async def run(self, started: Callable[[], None]) -> None:
        """Serve until `stop`, and call ``started`` once clients are served. Raises ONE_LINE_FAILURES."""

    def stop(self) -> None:
        """Make `run` end in order."""


def run_until_signalled(
    config: BrokerConfig,
    new_service: Callable[[], S],
    on_ready: Callable[[S], None],
    log: TextIO,
    companions: Sequence[Callable[[S], Awaitable[None]]] = (),
) -> int:
    """Run a service until SIGTERM or SIGINT; return the exit status: 0, or 1 after one error line if it cannot serve.

    ``new_service`` makes the service in the event loop; ``on_ready`` is called once clients are served. ``companions``
    are tasks that run beside the service and end with it.
    """
    # If the reader of standard output closes it, the logger must not fill standard error with tracebacks.
    logging.raiseExceptions = False
    limit_kept_memory()
    logging.basicConfig(level=LEVELS[config.gregor_log_level], format=LOG_FORMAT, stream=log)
    for level, lines in zip((logging.INFO, logging.WARNING), config.notices(), strict=True):
        for line in lines:
            logger.log(level, "%s", line)
    try:
        trio.run(_serve, new_service, on_ready, companions)
    except ONE_LINE_FAILURES as error:
        print(f"gregor: {error}", file=sys.stderr)  # noqa: T201 (the one line that a user reads)
        return 1
    return 0


async def _serve(
    new_service: Callable[[], S],
    on_ready: Callable[[S], None],
    companions: Sequence[Callable[[S], Awaitable[None]]],
) -> None:
    service = new_service()
    failure: Exception | None = None

    def started() -> None:
        on_ready(service)
        gc.collect()
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as watching:
            watching.start_soon(_stop_at_signal, signals, service, watching.cancel_scope)
            for companion in companions:
                watching.start_soon(companion, service)
            try:
                await service.run(started)
            except ONE_LINE_FAILURES as error:
                failure = error
            except ExceptionGroup as group:
                failure = _only_failure(group)
            watching.cancel_scope.cancel()
    if failure is not None:
        raise failure
    logger.info("stopped")


def _only_failure(group: ExceptionGroup[Exception]) -> Exception:
    """Return the single error of `ONE_LINE_FAILURES` that a group of exceptions holds; raise any other group."""
    found: list[Exception] = []
    pending: list[Exception] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, ExceptionGroup):
            pending += error.exceptions
        else:
            found.append(error)
    if len(found) == 1 and isinstance(found[0], ONE_LINE_FAILURES):
        return found[0]
    raise group


async def _stop_at_signal(signals: AsyncIterator[int], service: Service, everything: trio.CancelScope) -> None:
    async for number in signals:
        logger.info("%s: stopping", signal.Signals(number).name)
        is_serving = service.is_ready
        service.stop()
        if not is_serving:
            # No client is served: a broker that waits for its controller may stop at once.
            everything.cancel()
        return


def is_kernel_compiled() -> bool:
    """Return whether the record conversion loops are compiled to machine code."""
    kernel = importlib.import_module("...protocol.records.kernel_cy", __package__)
    return not (kernel.__file__ or "").endswith(".py")


def milliseconds_since_exec() -> int:
    """Return the age of this process by the kernel's clock, in milliseconds."""
    fields_after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields_after_name[19]) / os.sysconf("SC_CLK_TCK")
    return round((time.clock_gettime(time.CLOCK_BOOTTIME) - started_s) * 1000)
