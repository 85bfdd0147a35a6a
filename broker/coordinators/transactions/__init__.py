"""The transaction coordinator: the transactional ids, the open transactions, and the end of each transaction.

    InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn      DescribeTransactions, ListTransactions
                            |                                                       |
                       coordinator.py  ---------------------------------------------'
                        |          |
            transaction.py      transaction_log.py: records in __transaction_state, in Kafka's own format
            (values: states          |
             and transitions)   markers.py: commit and abort markers into the partitions of a transaction

A transition is written to the log before it takes effect, so a broker that crashes between two steps finds its decision
when it replays the log, and completes it.
"""
