"""The log of a coordinator: keyed records in a compacted internal topic, whose partitions this broker may lead.

`led_partitions` follows the leadership of these partitions; `request_writes` delays an answer until what its request
wrote is in all in-sync logs.
"""
