"""The times that requests take, by API: Kafka's RequestMetrics, measured only while a metrics listener is open.

A request waits in the receive buffer (RequestQueueTimeMs), is handled (LocalTimeMs), may wait for replicas, records or
members of a group (RemoteTimeMs), waits for earlier answers of its connection (ResponseQueueTimeMs), and is sent
(ResponseSendTimeMs). Percentiles are those of the last `SAMPLES` requests of an API; Kafka's histograms have as many
samples, chosen at random from the last minutes.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from time import perf_counter
from typing import Any

from ...protocol.apis import AnyApiKey, ApiKey, api_key
from .client_connection import ClientConnection
from .outcome import Outcome
from .parts import Answer

SAMPLES = 1028
"""The size of the reservoirs of Kafka's histograms (Yammer's `ExponentiallyDecayingSample`)."""
STEPS = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
)
MS_PER_S = 1000.0
CONSUMER_FETCH, FOLLOWER_FETCH = "FetchConsumer", "FetchFollower"
"""Kafka's names for the two kinds of Fetch requests, which are also counted together as Fetch."""


class StepTimes:
    """A record of the times of the last requests of one kind, in milliseconds."""

    __slots__ = ("_next", "_samples", "count")

    def __init__(self) -> None:
        self.count = 0
        """All requests since the start."""
        self._next = 0
        self._samples = [array("f", bytes(4 * SAMPLES)) for _ in STEPS]

    def add(self, times_ms: tuple[float, ...]) -> None:
        """Add the times of one request, in the order of `STEPS`."""
        position = self._next
        for samples, time_ms in zip(self._samples, times_ms, strict=True):
            samples[position] = time_ms
        self._next = (position + 1) % SAMPLES
        self.count += 1

    def sorted_samples(self, step: int) -> list[float]:
        """Return the times of one step, the shortest first."""
        return sorted(self._samples[step][: min(self.count, SAMPLES)])


class RequestTimes:
    """The times of all requests of one broker."""

    def __init__(self) -> None:
        self._by_key: dict[int, StepTimes] = {}
        self._fetches = {CONSUMER_FETCH: StepTimes(), FOLLOWER_FETCH: StepTimes()}

    def add(self, key: int, times_ms: tuple[float, ...], *, is_follower: bool) -> None:
        """Add the times of a request that is answered."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = StepTimes()
        found.add(times_ms)
        if key == ApiKey.FETCH:
            self._fetches[FOLLOWER_FETCH if is_follower else CONSUMER_FETCH].add(times_ms)

    def by_api(self) -> Iterator[tuple[AnyApiKey, StepTimes]]:
        """Yield the key of each API that was requested, with its times."""
        return ((api_key(key), found) for key, found in list(self._by_key.items()))

    def fetches(self) -> Iterator[tuple[str, StepTimes]]:
        """Yield `CONSUMER_FETCH` and `FOLLOWER_FETCH` with their times."""
        return iter(self._fetches.items())


class TimedRequest:
    """A request in progress, with the times at which it reached each step, in seconds of `perf_counter`."""

    __slots__ = ("begun_s", "completed_s", "delivered_s", "handled_s", "key", "received_s", "throttle_ms")

    def __init__(self, key: int, received_s: float, begun_s: float) -> None:
        self.key = key
        self.received_s = received_s
        self.begun_s = begun_s
        self.handled_s = self.completed_s = self.delivered_s = begun_s
        self.throttle_ms = 0

    def times_ms(self, sent_s: float) -> tuple[float, ...]:
        """Return the times in the order of `STEPS`, of a request whose answer is sent."""
        return (
            (self.begun_s - self.received_s) * MS_PER_S,
            (self.handled_s - self.begun_s) * MS_PER_S,
            (self.completed_s - self.handled_s) * MS_PER_S,
            float(self.throttle_ms),
            (self.delivered_s - self.completed_s) * MS_PER_S,
            (sent_s - self.delivered_s) * MS_PER_S,
            (sent_s - self.received_s) * MS_PER_S,
        )


class ConnectionTimes:
    """A clock of one connection's requests, which are answered in their order."""

    def __init__(self, times: RequestTimes, client: ClientConnection) -> None:
        self._times = times
        self._client = client
        self._received_s = 0.0
        self._in_progress: deque[TimedRequest] = deque()
        """The requests whose answers are not delivered yet, the oldest first."""
        self._unsent: list[TimedRequest] = []
        """The requests whose answers are delivered and may not be sent yet."""

    def received(self) -> None:
        """Note that bytes have arrived."""
        self._received_s = perf_counter()

    def begin(self, frame: memoryview) -> None:
        """Note that a request is being handled from now on."""
        key = int.from_bytes(frame[:2], "big", signed=True)
        self._in_progress.append(TimedRequest(key, self._received_s, perf_counter()))

    def handled(self, outcome: Outcome[Answer | None]) -> Outcome[Answer | None]:
        """Note that the handler has returned; return the outcome, a coroutine with a note of its end."""
        request = self._in_progress[-1]
        request.handled_s = request.completed_s = perf_counter()
        if outcome is None:
            self._in_progress.pop()
            request.delivered_s = request.handled_s
            self._add(request, request.handled_s)
        elif not isinstance(outcome, list) and isinstance(outcome, Coroutine):
            return _noting_the_end(outcome, request)
        return outcome

    def answered(self, key: int, request_count: int, begun_s: float) -> None:
        """Note that as many requests of one API were answered together since ``begun_s``, each at once."""
        for _ in range(request_count):
            request = TimedRequest(key, self._received_s, begun_s)
            request.handled_s = request.completed_s = request.delivered_s = perf_counter()
            self._unsent.append(request)

    def pending(self, on_complete: Callable[[], None]) -> Callable[[], None]:
        """Return a callback for the pending answer of the latest request that notes its completion first."""
        request = self._in_progress[-1]

        def completed() -> None:
            request.completed_s = perf_counter()
            on_complete()

        return completed

    def delivering(self) -> None:
        """Note that the oldest answer is being sent from now on."""
        if self._in_progress:
            request = self._in_progress.popleft()
            request.delivered_s = perf_counter()
            request.throttle_ms = self._client.throttle_ms
            self._unsent.append(request)

    def sent(self) -> None:
        """Note that the socket has accepted all answers."""
        if self._unsent:
            now_s = perf_counter()
            for request in self._unsent:
                self._add(request, now_s)
            self._unsent.clear()

    def _add(self, request: TimedRequest, sent_s: float) -> None:
        self._times.add(request.key, request.times_ms(sent_s), is_follower=self._client.is_follower)


async def _noting_the_end(outcome: Coroutine[Any, Any, Answer | None], request: TimedRequest) -> Answer | None:
    try:
        return await outcome
    finally:
        request.handled_s = request.completed_s = request.delivered_s = perf_counter()
