"""The hash that determines the partition of keyed records: Kafka's `Utils.murmur2`.

This is ordinary Python that is also compiled, like ``kernel_cy``: ``murmur2_cy.pxd`` has the C types.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

COMPILED: bool = cython.compiled
"""Whether this module is compiled."""

MULTIPLIER = 0x5BD1E995
SEED = 0x9747B28C
MASK = 0xFFFFFFFF


def murmur2(key: bytes | memoryview) -> int:
    """Return the unsigned 32-bit hash of a key. Kafka's Java producer chooses `(hash & 0x7FFFFFFF) % partitions`."""
    size = len(key)
    hashed = (SEED ^ size) & MASK
    position = 0
    while size - position >= 4:
        word = key[position] | key[position + 1] << 8 | key[position + 2] << 16 | key[position + 3] << 24
        word = (word * MULTIPLIER) & MASK
        word = ((word ^ (word >> 24)) * MULTIPLIER) & MASK
        hashed = ((hashed * MULTIPLIER) & MASK) ^ word
        position += 4
    if position < size:
        word = 0
        shift = 0
        while position < size:
            word |= key[position] << shift
            shift += 8
            position += 1
        hashed = ((hashed ^ word) * MULTIPLIER) & MASK
    hashed = ((hashed ^ (hashed >> 13)) * MULTIPLIER) & MASK
    return hashed ^ (hashed >> 15)
