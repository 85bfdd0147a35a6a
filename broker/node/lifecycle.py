"""The states of a broker as the controller sees them: registered, unfenced, leaving (KIP-631; Kafka
`BrokerLifecycleManager`)."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID, uuid4

import trio

from ...protocol.errors import BrokerError, ErrorCode
from ...protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ...protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ..config import BrokerConfig
from ..config.listeners import SECURITY_PROTOCOLS, Endpoint, security_protocol
from ..metadata.features import SUPPORTED_LEVELS
from ..metadata.store import MetadataStore
from ..peers.peers import ControllerLink

logger = logging.getLogger(__name__)

NOT_REGISTERED = -1
REGISTRATION_RETRY_S = 0.2
SHUTDOWN_POLL_S = 0.02
FORGOTTEN = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Error codes of heartbeats after which a broker must register again."""


class LogDirectories(Protocol):
    """A view of this broker's log directories that holds what the controller must know."""

    def failed_ids(self) -> list[UUID]:
        """Return the ids of directories that are offline until the next start."""

    def unwritable_ids(self) -> list[UUID]:
        """Return the ids of directories that accept no writes at present."""


class DirectoryTrouble(NamedTuple):
    """The failures of log directories that a heartbeat reports (KIP-858)."""

    failed: list[UUID]
    unwritable: list[UUID]


class BrokerLifecycle:
    """A task that registers one broker and sends its heartbeats; `epoch` is the broker epoch for other requests."""

    def __init__(
        self,
        link: ControllerLink,
        metadata: MetadataStore,
        config: BrokerConfig,
        advertised: Sequence[Endpoint],
        *,
        directories: LogDirectories,
        wait_for_directories: Callable[[], Awaitable[None]],
        is_controller: bool = False,
    ) -> None:
        """Prepare the lifecycle; ``wait_for_directories`` returns after the state of ``directories`` has changed."""
        self._directories = directories
        self._wait_for_directories = wait_for_directories
        self._told = DirectoryTrouble([], [])
        self._is_controller = is_controller
        self._link = link
        self._metadata = metadata
        self._config = config
        self._advertised = advertised
        self._incarnation_id = uuid4()
        self.log_dirs: list[UUID] = []
        """Ids of the log directories, set once the directories are open."""
        self.epoch = NOT_REGISTERED
        self._is_unfenced = trio.Event()
        self._is_leaving = False

    async def register(self) -> None:
        """Register the broker with the controller, which fences it at first.

        Raises BrokerError as the controller does; DUPLICATE_BROKER_REGISTRATION and REQUEST_TIMED_OUT only after
        ``initial.broker.registration.timeout.ms``.
        """
        deadline = trio.current_time() + self._config.initial_broker_registration_timeout_ms / 1000
        while True:
            remaining_s = max(deadline - trio.current_time(), 0.001)
            answer = await self._link.ask(self._registration(), BrokerRegistrationResponse, timeout_s=remaining_s)
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                self.epoch = answer.broker_epoch
                return
            if code is not ErrorCode.DUPLICATE_BROKER_REGISTRATION or trio.current_time() >= deadline:
                raise BrokerError(code, f"the controller refuses broker {self._config.node_id}: {code.name}")
            logger.info("another broker %d is still registered: waiting until it is fenced", self._config.node_id)
            await trio.sleep(REGISTRATION_RETRY_S)

    def _registration(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._metadata.cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=endpoint.name,
                    host=endpoint.host,
                    port=endpoint.port,
                    # The position is Kafka's number of the protocol.
                    security_protocol=SECURITY_PROTOCOLS.index(
                        security_protocol(endpoint.name, self._config.security_protocols)
                    ),
                )
                for endpoint in self._advertised
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in SUPPORTED_LEVELS.items()
            ],
            rack=self._config.broker_rack,
            log_dirs=[directory for directory in self.log_dirs if directory not in self._directories.failed_ids()],
        )

    async def wait_until_unfenced(self) -> None:
        """Wait until the controller has unfenced this broker and this broker's own metadata says so."""
        await self._is_unfenced.wait()
        while (own := self._metadata.broker(self._config.node_id)) is None or own.is_fenced:
            await self._metadata.wait_for_growth()

    async def run(self) -> None:
        """Send heartbeats until cancelled, the first as soon as this broker has read its own registration.

        A log directory that fails is reported at once.
        """
        interval_s = self._config.broker_heartbeat_interval_ms / 1000
        while True:
            while not self._is_unfenced.is_set() and self._metadata.end_offset <= self.epoch:
                await self._metadata.wait_for_growth()
            try:
                await self._beat(interval_s)
            except BrokerError as error:
                # The metadata follower logs why the controller does not answer.
                logger.debug("heartbeat: %s", error)
            await self._pause(interval_s)

    async def _pause(self, interval_s: float) -> None:
        """Wait until the next heartbeat is due, or the state of a log directory has changed."""
        # The broker in the controller's process needs no heartbeat: it is alive as long as the controller is.
        is_needless = self._is_controller and self._is_unfenced.is_set() and not any(self._told)
        with trio.move_on_after(math.inf if is_needless else interval_s):
            while self._trouble() == self._told:
                await self._wait_for_directories()
            return

    def _trouble(self) -> DirectoryTrouble:
        return DirectoryTrouble(self._directories.failed_ids(), self._directories.unwritable_ids())

    async def _beat(self, timeout_s: float) -> BrokerHeartbeatResponse:
        trouble = self._trouble()
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata.end_offset - 1,
            want_shut_down=self._is_leaving,
            offline_log_dirs=trouble.failed,
            gregor_unwritable_log_dirs=trouble.unwritable,
        )
        answer = await self._link.ask(request, BrokerHeartbeatResponse, timeout_s=timeout_s)
        code = ErrorCode(answer.error_code)
        if code in FORGOTTEN and not self._is_leaving:
            logger.warning(
                "the controller has no registration of this broker any more (%s): registering again", code.name
            )
            await self.register()
        elif code is not ErrorCode.NONE:
            raise BrokerError(code)
        else:
            self._told = trouble
            if not answer.is_fenced:
                self._is_unfenced.set()
        return answer

    async def leave(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` until other brokers lead this broker's partitions (controlled shutdown)."""
        self._is_leaving = True
        with trio.move_on_after(timeout_s) as limit:
            while True:
                try:
                    if (await self._beat(timeout_s)).should_shut_down:
                        return
                except BrokerError as error:
                    logger.info("controlled shutdown failed, stopping anyway: %s", error)
                    return
                await trio.sleep(SHUTDOWN_POLL_S)
        if limit.cancelled_caught:
            logger.warning("other brokers did not take over all partitions within %.1f s: stopping anyway", timeout_s)
