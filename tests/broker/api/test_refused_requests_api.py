"""Requests that a broker without authentication or members refuses, each as Apache Kafka 3.9.1 does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from gregor.broker.api.handlers.delegation_tokens import (
    handle_describe_delegation_token,
    handle_expire_delegation_token,
    handle_renew_delegation_token,
)
from gregor.broker.api.handlers.groups import handle_leave_group
from gregor.broker.api.handlers.security import handle_sasl_authenticate, handle_sasl_handshake
from gregor.broker.api.handlers.transaction_admin import handle_list_transactions
from gregor.broker.api.handlers.voters import handle_remove_raft_voter
from gregor.protocol.errors import ErrorCode
from gregor.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from gregor.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from gregor.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from gregor.protocol.messages.list_transactions import ListTransactionsRequest
from gregor.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from gregor.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from gregor.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from gregor.protocol.messages.sasl_handshake import SaslHandshakeRequest
from gregor.protocol.schema import Message
from tests.asking import Asking

NO_TOKENS = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(
    ("handler", "request_", "code"),
    [
        (handle_renew_delegation_token, RenewDelegationTokenRequest(), NO_TOKENS),
        (handle_expire_delegation_token, ExpireDelegationTokenRequest(), NO_TOKENS),
        (handle_describe_delegation_token, DescribeDelegationTokenRequest(), NO_TOKENS),
        (handle_sasl_handshake, SaslHandshakeRequest(mechanism="PLAIN"), ErrorCode.ILLEGAL_SASL_STATE),
        (handle_sasl_authenticate, SaslAuthenticateRequest(), ErrorCode.ILLEGAL_SASL_STATE),
        (handle_remove_raft_voter, RemoveRaftVoterRequest(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
async def test_token_sasl_and_voter_requests_are_refused_over_plaintext(
    asking: Asking, handler: Callable[..., Awaitable[Any]], request_: Message, code: ErrorCode
) -> None:
    assert (await asking.ask(handler, request_)).error_code == code


async def test_an_unknown_member_cannot_leave(asking: Asking) -> None:
    batched = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    response = await asking.ask(handle_leave_group, batched)
    assert [(member.member_id, member.error_code) for member in response.members] == [
        ("m", ErrorCode.UNKNOWN_MEMBER_ID)
    ]
    old = await asking.ask(handle_leave_group, LeaveGroupRequest(group_id="g", member_id="m"), version=2)
    assert (old.error_code, old.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


async def test_list_transactions_returns_unknown_state_filters(asking: Asking) -> None:
    response = await asking.ask(handle_list_transactions, ListTransactionsRequest(state_filters=["Asleep", "Ongoing"]))
    assert (response.unknown_state_filters, response.transaction_states) == (["Asleep"], [])
