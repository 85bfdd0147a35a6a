"""The value of a control record that commits or aborts a transaction, after an int16 version (KIP-98)."""

from __future__ import annotations

from ..schema import Int32, Message


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: Int32 = 0
