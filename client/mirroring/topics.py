"""The topics of a mirror: those that match at the source, and their counterparts at the target."""

from __future__ import annotations

import logging
import re

from ...protocol.apis import ApiKey
from ..admin import BROKER_DEFAULT, Admin, NewTopic, ResourceType
from ..errors import UnknownTopicError
from ..wire.cluster import TopicMetadata
from .errors import MirrorError

logger = logging.getLogger(__name__)

TOPIC_CONFIG_SOURCE = 1
"""DescribeConfigs' source number of values that were set for the topic itself (DYNAMIC_TOPIC_CONFIG)."""
MAX_MESSAGE_BYTES = "max.message.bytes"
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
OF_ITS_OWN_CLUSTER = re.compile(
    r"(follower|leader)\.replication\.throttled\.replicas|message\.timestamp\..*|unclean\.leader\.election\.enable"
    r"|min\.insync\.replicas|remote\..*|gregor\..*"
)
"""The settings that are not copied.

The ones of timestamps would change or refuse records that the source has accepted.
"""


async def check_clusters_differ(source: Admin, target: Admin) -> None:
    """Raise MirrorError if source and target are the same cluster: each run would copy each topic to itself.

    Clusters without an id (before Kafka 0.10.1) are the same if their brokers are.
    """
    here, there = await source.describe_cluster(), await target.describe_cluster()
    has_ids = here.cluster_id is not None or there.cluster_id is not None
    is_same = here.cluster_id == there.cluster_id if has_ids else here.brokers == there.brokers
    if is_same:
        raise MirrorError(
            f"the source and the target are the same cluster, {here.cluster_id or 'by its brokers'}: a topic cannot be "
            "mirrored to itself"
        )


async def matching_topics(source: Admin, pattern: re.Pattern[str]) -> list[TopicMetadata]:
    """Return the topics whose whole name matches, without the cluster's internal topics."""
    names = [name for name in await source.list_topics() if pattern.fullmatch(name)]
    return await source.describe_topics(names) if names else []


async def prepare_topic(
    source: Admin, target: Admin, topic: TopicMetadata, replication_factor: int = BROKER_DEFAULT
) -> int:
    """Create the topic at the target with the source's settings, or add the partitions that it lacks.

    Returns the target's max.message.bytes. Raises BrokerError, DeadlineExceededError.
    """
    count = len(topic.partitions)
    try:
        (existing,) = await target.describe_topics([topic.name])
    except UnknownTopicError:
        configs = await _configs(source, topic.name)
        await target.create_topics([NewTopic(topic.name, count, replication_factor, configs)])
    else:
        if len(existing.partitions) < count:
            await target.create_partitions(topic.name, count)
        elif len(existing.partitions) > count:
            logger.warning(
                "%s has more partitions at the target than at the source: the additional partitions stay empty",
                topic.name,
            )
    (entry,) = await target.describe_configs(ResourceType.TOPIC, topic.name, [MAX_MESSAGE_BYTES])
    return int(entry.value or DEFAULT_MAX_MESSAGE_BYTES)


async def _configs(source: Admin, name: str) -> dict[str, str]:
    """Return the settings of the topic itself, and max.message.bytes wherever that was set."""
    if not await source.speaks(ApiKey.DESCRIBE_CONFIGS):
        return {}
    return {
        entry.name: entry.value or ""
        for entry in await source.describe_configs(ResourceType.TOPIC, name)
        if not OF_ITS_OWN_CLUSTER.fullmatch(entry.name)
        and (
            entry.config_source == TOPIC_CONFIG_SOURCE
            or (entry.name == MAX_MESSAGE_BYTES and entry.value != str(DEFAULT_MAX_MESSAGE_BYTES))
        )
    }
