"""Errors for partitions of an incremental fetch session (KIP-227), which neither request nor answer may name."""

from __future__ import annotations

from collections.abc import Collection

from ....protocol.messages.fetch import FetchableTopicResponse, FetchResponse
from ...faults.rule import FaultRule
from ...replicas.fetching.reading import failed_partition
from ...replicas.fetching.sessions import FetchedPartition


def refuse_silent_partitions(response: FetchResponse, session: Collection[FetchedPartition], rule: FaultRule) -> None:
    """Add an error for each partition of the session that the rule matches and the response leaves out."""
    mentioned = {
        (topic.topic, topic.topic_id, part.partition_index) for topic in response.responses for part in topic.partitions
    }
    for fetched in session:
        index = fetched.wanted.partition
        if rule.strikes_place(fetched.topic, index) and (fetched.topic, fetched.topic_id, index) not in mentioned:
            failed = failed_partition(index, rule.error)
            response.responses.append(
                FetchableTopicResponse(topic=fetched.topic, topic_id=fetched.topic_id, partitions=[failed])
            )
