"""The transaction coordinator: which transactional ids exist, which transactions are open, and how each one ends.

    InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn      DescribeTransactions, ListTransactions
                            |                                                       |
                       coordinator.py  ---------------------------------------------'
                        |          |
            transaction.py      transaction_log.py: records in __transaction_state, in Kafka's own format
            (values: states          |
             and transitions)   markers.py: commit and abort markers into the partitions of a transaction

A transition is written to the log before it is believed, so a broker that dies between two steps finds, when it reads
the log again, what it had decided, and finishes it.
"""
