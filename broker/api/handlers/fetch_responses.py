"""Responses to Fetch, put together from the answers of partitions or from one error."""

from __future__ import annotations

import itertools

from ....protocol.errors import ErrorCode
from ....protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from ...replicas.fetching.reading import failed_partition
from ...replicas.fetching.sessions import FIRST_VERSION_WITH_TOPIC_IDS, Answers, requested_partitions


def by_topic(answers: Answers) -> list[FetchableTopicResponse]:
    """Group adjacent answers of the same topic."""
    return [
        FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=[answer for _, answer in group])
        for (topic, topic_id), group in itertools.groupby(
            answers, key=lambda entry: (entry[0].topic, entry[0].topic_id)
        )
    ]


def refused(request: FetchRequest, version: int, code: ErrorCode) -> FetchResponse:
    """Return an answer with an error at the top level and, for versions without topic ids, in each partition."""
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return FetchResponse(error_code=code)
    partitions = requested_partitions(request, uses_topic_ids=False)
    answers = [(wanted, failed_partition(wanted.wanted.partition, code)) for wanted in partitions]
    return FetchResponse(error_code=code, responses=by_topic(answers))
