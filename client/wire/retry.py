"""The retry loop of all requests except Produce and Fetch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

import trio

from ...protocol.errors import BrokerError
from ..config import ClientConfig
from ..errors import ConnectionLostError, DeadlineExceededError, is_retriable
from .backoff import backoff_seconds

T = TypeVar("T")

_random = Random()


async def retry(
    attempt: Callable[[], Awaitable[T]],
    config: ClientConfig,
    *,
    timeout_ms: int,
    what: str,
    before_retry: Callable[[Exception], None] | None = None,
) -> T:
    """Call `attempt` until it returns, waiting by `retry.backoff.ms` in between.

    `before_retry` is called with each retriable failure, to discard stale state. Raises BrokerError for permanent
    refusals, DeadlineExceededError after `timeout_ms`, with the last failure as its cause.
    """
    failures = 0
    last_failure: Exception | None = None
    with trio.move_on_after(timeout_ms / 1000):
        while True:
            try:
                return await attempt()
            except (ConnectionLostError, BrokerError) as failure:
                if not is_retriable(failure):
                    raise
                last_failure = failure
            if before_retry is not None:
                before_retry(last_failure)
            failures += 1
            await trio.sleep(backoff_seconds(failures, config.retry_backoff_ms, config.retry_backoff_max_ms, _random))
    because = f": {last_failure}" if last_failure is not None else ""
    raise DeadlineExceededError(f"{what} did not work within {timeout_ms} ms{because}") from last_failure
