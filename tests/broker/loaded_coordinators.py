"""Brokers whose coordinators have just started, and load their partitions before they answer."""

from __future__ import annotations

from gregor.protocol.apis import ApiKey
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.describe_groups import DescribeGroupsRequest
from gregor.protocol.messages.describe_transactions import DescribeTransactionsRequest
from gregor.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker_process import BrokerProcess
from tests.cluster_of_processes import until
from tests.wire import Wire

GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators, as FindCoordinator has them."""
NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def make_internal_topics(broker: BrokerProcess) -> None:
    """Create the internal topics, as the first group member and transactional producer would."""
    with Wire(broker.address) as wire:
        for kind in (GROUP, TRANSACTION):
            request = FindCoordinatorRequest(key="first", key_type=kind)
            until(lambda request=request: not wire.ask(ApiKey.FIND_COORDINATOR, 3, request).error_code)  # type: ignore[misc]


def wait_until_loaded(broker: BrokerProcess, group: str, transactional_id: str) -> None:
    """Return once both coordinators have loaded their partitions, and ending transactions are complete."""
    groups = DescribeGroupsRequest(groups=[group])
    transactions = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with Wire(broker.address) as wire:

        def have_groups() -> bool:
            return wire.ask(ApiKey.DESCRIBE_GROUPS, 5, groups).groups[0].error_code not in NOT_YET

        def are_at_rest() -> bool:
            (described,) = wire.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactions).transaction_states
            return described.error_code not in NOT_YET and not described.transaction_state.startswith("Prepare")

        until(have_groups)
        until(are_at_rest)
