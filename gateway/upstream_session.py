"""The SASL session of a link to an upstream broker, which is renewed on the live link (KIP-368)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import trio

from ..client.config import ClientConfig
from ..client.wire.login import new_login
from ..protocol.conversation import Conversation
from ..protocol.framing import LENGTH
from ..protocol.spoken_versions import SpokenVersions
from ..security.client_login import LARGEST_ANSWER_BYTES, reauthentication_delay_s
from ..security.errors import SaslAuthenticationError

Ask = Callable[[bytes], Awaitable[bytes]]
"""Sends the frame of a request and returns that of its answer."""


class UpstreamSession:
    """A session of the gateway's own principal, which ends unless the gateway authenticates again."""

    def __init__(self, config: ClientConfig, versions: SpokenVersions, length_s: float) -> None:
        """Begin a session of ``length_s`` seconds with a broker that serves these versions."""
        self._config = config
        self._versions = versions
        self._random = Random()
        self._authenticates_at = self._end_of(length_s)

    @property
    def ends_soon(self) -> bool:
        """Whether the gateway must authenticate before its next request."""
        return trio.current_time() >= self._authenticates_at

    async def renew(self, ask: Ask) -> None:
        """Authenticate again within ``request.timeout.ms``.

        Raises SaslAuthenticationError, BrokerError, DecodeError, and the errors of ``ask``.
        """
        timeout_s = self._config.request_timeout_ms / 1000
        try:
            with trio.fail_after(timeout_s):
                self._authenticates_at = self._end_of(await self._log_in(ask))
        except trio.TooSlowError:
            raise SaslAuthenticationError(f"no answer within {timeout_s:g} s") from None

    async def _log_in(self, ask: Ask) -> float | None:
        login = await new_login(self._config)
        conversation = Conversation(self._config.client_id, limit_bytes=LARGEST_ANSWER_BYTES)
        requests = login.requests(self._versions)
        try:
            message, version = next(requests)
            while True:
                conversation.submit(message, version)
                frame = await ask(b"".join(conversation.take_outgoing())[LENGTH.size :])
                body = conversation.answer(memoryview(frame)).body
                assert body is not None
                await login.prepare(body, trio.to_thread.run_sync)
                message, version = requests.send(body)
        except StopIteration as end:
            length_s: float | None = end.value
            return length_s

    def _end_of(self, length_s: float | None) -> float:
        return trio.current_time() + reauthentication_delay_s(length_s, self._random)
