"""DeleteTopics (key 20): delete topics by name, from v6 on also by id (KIP-516).

v4 is flexible, v5 explains errors (KIP-599). In v6 `name` is null in the response if an id is unknown.
"""

from __future__ import annotations

from typing import Annotated

from ..schema import (
    IGNORABLE,
    NO_UUID,
    ErrorCodeNumber,
    Int32,
    Message,
    Nullable,
    String,
    Struct,
    TopicId,
    TopicName,
    Versions,
)


class DeleteTopicState(Struct):
    name: TopicName | None = None
    topic_id: TopicId = NO_UUID


class DeleteTopicsRequest(Message, versions="0-6", flexible="4+"):
    topics: Annotated[list[DeleteTopicState], Versions("6+")] = []
    topic_names: Annotated[list[TopicName], Versions("0-5"), IGNORABLE] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[TopicName | None, Nullable("6+")] = ""
    topic_id: Annotated[TopicId, Versions("6+"), IGNORABLE] = NO_UUID
    error_code: ErrorCodeNumber = 0
    error_message: Annotated[String | None, Versions("5+"), IGNORABLE] = None


class DeleteTopicsResponse(Message, versions="0-6", flexible="4+"):
    throttle_time_ms: Annotated[Int32, Versions("1+"), IGNORABLE] = 0
    responses: list[DeletableTopicResult] = []
