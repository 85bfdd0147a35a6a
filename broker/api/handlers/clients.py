"""DescribeClients, which only Gregor's own tools send: the clients of this broker and their usage."""

from __future__ import annotations

from ....protocol.messages.describe_clients import DescribeClientsRequest, DescribeClientsResponse
from ...server.described_clients import describe_clients
from ..contract import RequestContext


def handle_describe_clients(request: DescribeClientsRequest, context: RequestContext) -> DescribeClientsResponse:
    """Return all client usages that the census has recorded."""
    return describe_clients(context.services.clients)
