"""Producer ids on a broker that is not the controller, from blocks that are requested ahead of use (KIP-730).

Source: Kafka `RPCProducerIdManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from ....protocol.errors import BrokerError, ErrorCode
from ....protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ...metadata.producer_ids import BLOCK_SIZE
from ...peers.peers import ControllerLink

logger = logging.getLogger(__name__)

ASK_BELOW = BLOCK_SIZE // 10
BACKOFF_S = 0.5


class ProducerIdBlocks:
    """A source of producer ids from the controller's blocks; it requests new blocks while `run` runs."""

    def __init__(self, link: ControllerLink, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._link = link
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._blocks: list[range] = []
        self._wanted = trio.Event()

    def next(self) -> int:
        """Return a new producer id.

        Raises BrokerError COORDINATOR_LOAD_IN_PROGRESS while there is none, as Kafka does.
        """
        if sum(map(len, self._blocks)) <= ASK_BELOW:
            self._wanted.set()
        while self._blocks:
            block = self._blocks[0]
            if block:
                self._blocks[0] = block[1:]
                return block[0]
            del self._blocks[0]
        raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids are left; a new block is requested")

    async def run(self) -> None:
        """Request a block at first, and whenever the last block is nearly used up, until cancelled."""
        while True:
            try:
                await self._ask()
            except BrokerError as error:
                logger.warning("the controller has not allocated producer ids: %s", error)
                await trio.sleep(BACKOFF_S)
                continue
            self._wanted = trio.Event()
            await self._wanted.wait()

    async def _ask(self) -> None:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        answer = await self._link.ask(request, AllocateProducerIdsResponse)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code))
        self._blocks.append(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
