"""The replication of one broker in a cluster of several: the parts that its partitions need, and its tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ....storage.clock import Clock
from ....storage.log_manager import LogManager
from ...config import BrokerConfig
from ...metadata.store import MetadataStore
from ...peers.peers import ControllerLink, Peers
from ...peers.stepwise_reading import Watcher
from ..partition_registry import PartitionRegistry
from .fetcher import CopyingBroker, ReplicaFetchers
from .in_sync_changes import InSyncChanges
from .leadership import NO_BROKER_EPOCH, ReplicationRules
from .replicas import Copying
from .throttle import ReplicationThrottles

logger = logging.getLogger(__name__)


class Replication:
    """A set of tasks that copy the followed partitions, and maintain the in-sync sets of the led ones."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataStore,
        logs: LogManager,
        partitions: PartitionRegistry,
        *,
        peers: Peers,
        link: ControllerLink,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._config = config
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._changes = InSyncChanges(link, config.node_id, broker_epoch, partitions)
        self.copying: Copying
        self.watcher: Watcher | None = None
        """The watcher of this broker's sockets, once its listeners are open."""
        self.throttles = ReplicationThrottles(config, metadata, clock.now_ms)
        self._fetchers = self.copying = ReplicaFetchers(
            CopyingBroker(
                config.node_id, broker_epoch, config, peers, self.throttles.follower, clock.now_ms, lambda: self.watcher
            )
        )
        self.rules = ReplicationRules(
            config.node_id, config.replica_lag_time_max_ms, clock.now_ms, self._may_join, self._changes.wish
        )

    @property
    def max_lag(self) -> int:
        """The most records by which a followed partition was behind at its last fetch."""
        return self._fetchers.max_lag

    @property
    def least_fetch_rate(self) -> float:
        """The lowest rate of the fetching tasks, in Fetch requests per second (Kafka ``MinFetchRate``)."""
        return self._fetchers.least_fetch_rate

    def _may_join(self, node_id: int, broker_epoch: int) -> bool:
        broker = self._metadata.broker(node_id)
        return broker is not None and broker.is_active and broker_epoch in (NO_BROKER_EPOCH, broker.epoch)

    async def run(self) -> None:
        """Run the replication tasks until cancelled."""
        self.throttles.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._fetchers.run)
            nursery.start_soon(self._changes.run)
            nursery.start_soon(self._drop_laggards)
            nursery.start_soon(self._note_high_watermarks)
            nursery.start_soon(self._partitions.waiting.run)

    async def _drop_laggards(self) -> None:
        """Check for lagging followers twice in each lag time (Kafka: `isr-expiration`)."""
        while True:
            await trio.sleep(self._config.replica_lag_time_max_ms / 2000)
            for partition in self._partitions:
                partition.drop_laggards()

    async def _note_high_watermarks(self) -> None:
        while True:
            await trio.sleep(self._config.replica_high_watermark_checkpoint_interval_ms / 1000)
            for write in self._logs.maintenance.high_watermark_checkpoints():
                await trio.to_thread.run_sync(write)
