"""The group coordinator: who is in a group, who reads what, and how far each group has read.

    JoinGroup, SyncGroup,             OffsetCommit, OffsetFetch,       ConsumerGroupHeartbeat
    Heartbeat, LeaveGroup             OffsetDelete, TxnOffsetCommit    (KIP-848)
          |                                  |                               |
    classic_protocol.py                offset_service.py              consumer_protocol.py
          |                                  |                               |
    classic_group.py (values)          committed_offsets.py (values)  consumer_group.py (values)
          \\__________________________________|______________________________/
                                             |
          group_log.py, consumer_group_log.py: records in __consumer_offsets, in Kafka's own formats

`coordinator.py` puts them together and is what the rest of the broker knows. Groups change their protocol in
`migration.py`; meanwhile `classic_in_consumer.py` serves the old requests on groups of the new protocol. Who reads
what is decided in `assignors.py`; how a member gets there, while no partition has two owners, in `consumer_member.py`.
"""
