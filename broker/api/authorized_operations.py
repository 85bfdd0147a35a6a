"""Operations that a client may perform, as bit sets (KIP-430): all of them, as there is no authorizer.

Bit n stands for the operation with the code n in Kafka's ``AclOperation``.
"""

NOT_ASKED = -0x80000000
"""The value in a response to a client that did not ask for authorized operations."""

TOPIC_OPERATIONS = 0b1101_1111_1000
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS."""

CLUSTER_OPERATIONS = 0b1_1111_1010_0000
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and IDEMPOTENT_WRITE."""

assert TOPIC_OPERATIONS == 3576
assert CLUSTER_OPERATIONS == 8096
