"""The group coordinator: who is in a group, who reads what, and how far each group has read.

    JoinGroup, SyncGroup,             OffsetCommit, OffsetFetch,       ConsumerGroupHeartbeat
    Heartbeat, LeaveGroup             OffsetDelete, TxnOffsetCommit    (KIP-848)
          |                                  |                               |
    classic_protocol.py                offset_service.py              consumer_protocol.py
          |                                  |                               |
    classic_group.py (values)          committed_offsets.py (values)  consumer_group.py (values)
          \\__________________________________|______________________________/
                                             |
                    group_log.py: records in __consumer_offsets, in Kafka's own formats

`coordinator.py` puts them together and is what the rest of the broker knows.
"""
