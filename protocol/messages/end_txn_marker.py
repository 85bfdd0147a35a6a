"""end_txn_marker"""

from __future__ import annotations

from ..schema import Int32, Message


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: Int32 = 0
