"""The log of a coordinator: keyed records in a compacted internal topic, whose partitions this broker may lead.

`led_partitions` tracks the leadership of these partitions; `request_writes` delays an answer until all in-sync replicas
have the records that its request wrote.
"""
