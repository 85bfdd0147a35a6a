"""Leader hints in refusals (KIP-951): clients need no metadata request before they go to the new leader."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages import fetch, produce
from ...metadata.state import PartitionState
from ..advertised import VisibleBroker, visible_brokers
from ..contract import RequestContext

FIRST_PRODUCE_VERSION = 10
FIRST_FETCH_VERSION = 16
FETCH_REFUSALS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def hint_in_produce(response: produce.ProduceResponse, context: RequestContext) -> None:
    """Add the leaders of partitions that this broker does not lead to a Produce response."""
    if context.api_version < FIRST_PRODUCE_VERSION:
        return
    leaders = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            state = _state_of(topic.name, answer.index, context)
            if state is not None:
                answer.current_leader = produce.LeaderIdAndEpoch(
                    leader_id=state.leader, leader_epoch=state.leader_epoch
                )
                leaders.add(state.leader)
    response.node_endpoints = [
        produce.NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in _reachable(leaders, context)
    ]


def hint_in_fetch(response: fetch.FetchResponse, context: RequestContext) -> None:
    """Add leaders to a Fetch response, also for clients with an older leader epoch."""
    if context.api_version < FIRST_FETCH_VERSION:
        return
    leaders = set()
    for topic in response.responses:
        for answer in topic.partitions:
            if answer.error_code not in FETCH_REFUSALS:
                continue
            state = _state_of(topic.topic, answer.partition_index, context)
            if state is not None:
                answer.current_leader = fetch.LeaderIdAndEpoch(leader_id=state.leader, leader_epoch=state.leader_epoch)
                leaders.add(state.leader)
    response.node_endpoints = [
        fetch.NodeEndpoint(node_id=broker.node_id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in _reachable(leaders, context)
    ]


def _state_of(topic: str, index: int, context: RequestContext) -> PartitionState | None:
    known = context.services.metadata.topics.get(topic)
    return known.partitions[index] if known is not None and 0 <= index < len(known.partitions) else None


def _reachable(leaders: set[int], context: RequestContext) -> list[VisibleBroker]:
    return [broker for broker in visible_brokers(context) if broker.node_id in leaders] if leaders else []
