"""The hash that decides where keyed records live: Kafka's `Utils.murmur2`.

Ordinary Python that is also compiled, as ``kernel_cy`` is: ``murmur2_cy.pxd`` gives the C types.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from . import cython_stand_in as cython

COMPILED: bool = cython.compiled
"""Whether this is the compiled module."""

MULTIPLIER = 0x5BD1E995
SEED = 0x9747B28C
MASK = 0xFFFFFFFF


def murmur2(key: bytes | memoryview) -> int:
    """The hash of a key, unsigned, of 32 bits. Kafka's Java producer puts `(hash & 0x7FFFFFFF) % partitions`."""
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
