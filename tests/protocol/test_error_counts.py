"""The error codes of responses, as Kafka's ``AbstractResponse.errorCounts`` counts them."""

from __future__ import annotations

from collections import Counter

import pytest

from gregor.protocol.apis import ApiKey, response_class
from gregor.protocol.error_counts import errors_in
from gregor.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from gregor.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from gregor.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from gregor.protocol.schema import Struct


def produced(*codes: int) -> ProduceResponse:
    answers = [PartitionProduceResponse(error_code=code) for code in codes]
    return ProduceResponse(responses=[TopicProduceResponse(partition_responses=answers)])


def described(topic: int, *partitions: int) -> MetadataResponse:
    answers = [MetadataResponsePartition(error_code=code) for code in partitions]
    return MetadataResponse(topics=[MetadataResponseTopic(error_code=topic, partitions=answers)])


@pytest.mark.parametrize(
    ("response", "counts"),
    [
        (produced(), {}),
        (produced(0, 0, 6), {0: 2, 6: 1}),
        (described(0, 5, 0), {0: 3, 5: 1}),
        (FetchResponse(error_code=70), {70: 1}),
        (FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(error_code=1)])]), {0: 1, 1: 1}),
    ],
    ids=["no entries", "by partition", "top level, topic and partitions", "top level", "both levels"],
)
def test_each_code_is_counted(response: Struct, counts: dict[int, int]) -> None:
    assert Counter(errors_in(response)) == counts


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_each_response_can_be_counted(key: ApiKey) -> None:
    assert set(errors_in(response_class(key)())) <= {0}
