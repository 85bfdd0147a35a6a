"""The log of a coordinator: keyed records in a compacted internal topic, whose partitions this broker may lead.

`led_partitions` tracks the leadership of these partitions; `unreplicated_writes` delays an answer until all in-sync
replicas have the records that it depends on.
"""
