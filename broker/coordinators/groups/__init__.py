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

`coordinator.py` combines these parts and is their interface to the rest of the broker. All groups are in one map
(`group_map.py`). The coordinator serves each group through one interface (`served_group.py`), implemented by
`classic_protocol.py` for classic groups and by `classic_in_consumer.py` for groups of the consumer protocol. Refusals
are raised as BrokerError; handlers turn them into errors of an answer. `migration.py` changes the protocol of groups.
`assignors.py` computes target assignments; `consumer_member.py` moves a member to its target, so that no partition has
two owners.
"""
