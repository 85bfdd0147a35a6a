"""The group coordinator: the members of each group, their assignments, and the committed offsets.

    JoinGroup, SyncGroup,             OffsetCommit, OffsetFetch,       ConsumerGroupHeartbeat
    Heartbeat, LeaveGroup             OffsetDelete, TxnOffsetCommit    (KIP-848)
          |                                  |                               |
    classic_protocol.py                offset_service.py              consumer_protocol.py
          |                                  |                               |
    classic_group.py (values)          committed_offsets.py (values)  consumer_group.py (values)
          \\__________________________________|______________________________/
                                             |
          group_log.py, consumer_group_log.py: records in __consumer_offsets, in Kafka's own formats

`coordinator.py` combines these parts and is their interface to the rest of the broker. `migration.py` changes the
protocol of groups; meanwhile `classic_in_consumer.py` serves classic requests on groups of the consumer protocol.
`assignors.py` computes target assignments; `consumer_member.py` moves a member to its target, so that no partition has
two owners.
"""
