"""Periodic tasks of a broker that concern neither its logs nor its connections."""

from __future__ import annotations

import trio

from ..authentication.delegation_tokens import DelegationTokens
from ..config import BrokerConfig
from ..coordinators.transactions.coordinator import TransactionCoordinator


async def remove_expired_tokens(tokens: DelegationTokens, config: BrokerConfig) -> None:
    """Remove delegation tokens that have expired, until cancelled; only the controller does so."""
    while config.roles.controller is None:
        await trio.sleep(config.delegation_token_expiry_check_interval_ms / 1000)
        tokens.remove_expired()


async def keep_transactions(transactions: TransactionCoordinator, config: BrokerConfig) -> None:
    """Keep transactions in order until cancelled.

    Transactions that timed out are aborted, markers that are missing are written, and transactional ids that have
    expired are removed.
    """
    while True:
        await trio.sleep(config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000)
        transactions.abort_timed_out()
        transactions.resume()
        transactions.forget_expired()
