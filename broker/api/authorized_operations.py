"""What a client may do, as bit sets (KIP-430): everything, as long as there is no authorizer.

Bit n stands for the operation that Kafka's ``AclOperation`` gives the code n.
"""

NOT_ASKED = -0x80000000
"""What stands in a response where the client did not ask."""

TOPIC_OPERATIONS = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS."""

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and IDEMPOTENT_WRITE."""

assert TOPIC_OPERATIONS == 3576
assert CLUSTER_OPERATIONS == 8096
