"""``python -m bench.conversion``: the speed of converting stored batches to an older format, without a socket.

Each line is the median of several rounds, in GB of stored records per second, beside the speed of a plain copy of
the same bytes. "from cache" converts the same 128 kB again and again, "from memory" reads more than the caches hold,
as a broker does over a mapped segment.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable

from gregor.protocol.records import kernel_cy, v1
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.lazy import DEFAULT_CHUNK_BYTES, plan_down_conversion, plan_up_conversion
from gregor.protocol.records.record import Record
from gregor.protocol.records.v2 import build_batch

BATCH_BYTES = 16 * 1024
FROM_MEMORY_BYTES = 256 * 1024 * 1024
TIMESTAMP = 1_700_000_000_000
WORDS = b"order region status deleted created warehouse 200 404 us-east-1 eu-west-2 user click basket total".split()
"""The words of log-like text, which codecs can compress."""


def stored_batches(value_bytes: int, total_bytes: int, codec: Codec = Codec.NONE) -> bytes:
    """Return at least `total_bytes` of equal v2 batches of about 16 kB, as in a log."""
    count = max(1, BATCH_BYTES // value_bytes)
    words = random.Random(283).choices(WORDS, k=value_bytes * count)
    text = b" ".join(words)
    records = [
        Record(offset, TIMESTAMP + offset, b"key", text[offset * value_bytes : (offset + 1) * value_bytes])
        for offset in range(count)
    ]
    batch = build_batch(records, codec=codec)
    return batch * (total_bytes // len(batch) + 1)


def gigabytes_per_second(work: Callable[[], object], size_bytes: int, rounds: int) -> float:
    """Return the median speed over `rounds`, each of at least 50 ms."""
    work()
    rates = []
    for _ in range(rounds):
        repeats, begin = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - begin) < 0.05 or not repeats:
            work()
            repeats += 1
        rates.append(size_bytes * repeats / elapsed / 1e9)
    return statistics.median(rates)


def kernel_alone(stored: memoryview, to_magic: int, out: memoryview) -> Callable[[], None]:
    """Return a function that runs the kernel's loop over the same buffer."""

    def convert() -> None:
        conversion = kernel_cy.DownConversion(to_magic, 0)
        end = len(stored)
        while conversion.fill(stored, end, out) and conversion.stop == kernel_cy.Stop.OUT_IS_FULL:
            pass

    return convert


def whole_answer(stored: memoryview, to_magic: int, out: bytearray) -> Callable[[], None]:
    """Return a function that plans and converts a partition, as the broker does."""

    def convert() -> None:
        for _ in plan_down_conversion(stored, to_magic, 0).pieces(out):
            pass

    return convert


def up_answer(stored: memoryview, out: bytearray) -> Callable[[], None]:
    """Return a function like that of `whole_answer`, for a client that reads only v2."""

    def convert() -> None:
        for _ in plan_up_conversion(stored, 0).pieces(out):
            pass

    return convert


def plain_copy(stored: memoryview, out: memoryview) -> Callable[[], None]:
    """Return a function that copies the bytes: the limit of the memory."""

    def copy() -> None:
        for start in range(0, len(stored), len(out)):
            part = stored[start : start + len(out)]
            out[: len(part)] = part

    return copy


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    simd = "SIMD CRC" if kernel_cy.COMPILED else "CRC as it comes"
    print(f"kernel: {kernel_cy.implementation()}, {simd}; median of {rounds} rounds, GB/s of stored records")
    out = bytearray(2 * DEFAULT_CHUNK_BYTES)
    memory_bytes = FROM_MEMORY_BYTES if kernel_cy.COMPILED else FROM_MEMORY_BYTES // 64
    for value_bytes in (1000, 100, 10):
        for place, total in (("cache", DEFAULT_CHUNK_BYTES), ("memory", memory_bytes)):
            stored = memoryview(stored_batches(value_bytes, total))
            rates = {
                "copy": gigabytes_per_second(plain_copy(stored, memoryview(out)), len(stored), rounds),
                "v2 to v1": gigabytes_per_second(kernel_alone(stored, 1, memoryview(out)), len(stored), rounds),
                "v2 to v0": gigabytes_per_second(kernel_alone(stored, 0, memoryview(out)), len(stored), rounds),
                "lazy v1": gigabytes_per_second(whole_answer(stored, 1, out), len(stored), rounds),
            }
            columns = "  ".join(f"{name} {rate:6.2f}" for name, rate in rates.items())
            print(f"{value_bytes:5} B values from {place:6}  {columns}")
    plain_bytes = len(stored_batches(100, 0))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
        stored = memoryview(stored_batches(100, DEFAULT_CHUNK_BYTES, codec))
        batch_count = len(stored) // len(stored_batches(100, 0, codec))
        rate = gigabytes_per_second(whole_answer(stored, 1, out), batch_count * plain_bytes, rounds)
        print(f"  100 B values, {codec.name.lower():6}: lazy v1 {rate:6.3f} (decompressed bytes)")
    messages = memoryview(v1.build_message_set([Record(n, TIMESTAMP, b"key", b"v" * 100) for n in range(1000)]))
    rate = gigabytes_per_second(up_answer(messages, out), len(messages), rounds)
    print(f"  100 B values: lazy v1 to v2 {rate:6.2f}")


if __name__ == "__main__":
    main()
