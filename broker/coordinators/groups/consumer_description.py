"""Descriptions of groups of the consumer protocol: ConsumerGroupDescribe."""

from __future__ import annotations

from ....protocol.messages.consumer_group_describe import Assignment as AssignmentMessage
from ....protocol.messages.consumer_group_describe import DescribedGroup, Member, TopicPartitions
from .assignment import NOTHING, Assignment
from .consumer_group import ConsumerGroup
from .consumer_member import ConsumerMember
from .current_topics import CurrentTopics


def describe_consumer_group(group: ConsumerGroup, topics: CurrentTopics, default_assignor: str) -> DescribedGroup:
    """Describe a group with the present and the target assignment of each member."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(default_assignor),
        members=[_describe_member(group, member, topics) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: ConsumerMember, topics: CurrentTopics) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topics),
        subscribed_topic_regex=member.subscribed_regex,
        assignment=_message(member.assigned, topics),
        target_assignment=_message(group.target.get(member.member_id, NOTHING), topics),
    )


def _message(assignment: Assignment, topics: CurrentTopics) -> AssignmentMessage:
    known = [(topics.by_id(topic_id), partitions) for topic_id, partitions in assignment.items()]
    return AssignmentMessage(
        topic_partitions=[
            TopicPartitions(topic_id=topic.topic_id, topic_name=topic.name, partitions=sorted(partitions))
            for topic, partitions in known
            if topic is not None
        ]
    )
