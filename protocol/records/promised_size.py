"""The size that is promised for the batches behind the first one of a down-conversion.

KIP-283 counts these batches with their stored size. Where they become smaller, the answer ends with padding: records
with headers may lose half, a large batch of which only the last records are wanted loses nearly all. So if the first
batch loses more than a quarter, uncompressed batches are measured, until

- as many bytes are promised as were stored up to there: the batches grow, as most do, and the answer will be cut at the
  stored size and not padded. (For batches that grow this is the first or second batch: the measurement costs nothing
  where it saves nothing.)
- there is a compressed or damaged batch, or `MOST_MEASURED_BYTES` are measured, since plans are made in the thread that
  serves all clients.

Then the rest counts several times, so that it may still grow, but all counts no more than in KIP-283. An incomplete
batch behind the others is not converted, yet KIP-283 counts its bytes, which batches that grow use: these bytes are
promised as far as the complete batches may grow.
"""

from __future__ import annotations

from . import kernel_cy, v0
from .kernel_cy import Stop
from .stretch import Stretch, window_with_batch

MEASURED_BYTES = 128 * 1024
"""The number of bytes read at a time."""
LEAST_SHARE = 0.75
"""A first batch that keeps more than this share is not worth a measurement: it takes more CPU time than the padding."""
LEAST_LOST_SHARE = 1 / 16
"""The share of the stored size that the records below the first offset must have, to be worth a measurement: a consumer
fetches from the middle of a batch nearly always, and the padding costs less than the measurement."""
ALL_OFFSETS = -1
MOST_GROWTH = 5
"""The factor by which batches grow at most: the smallest record of v2 has 7 bytes, the smallest message of v1 34."""
MOST_MEASURED_BYTES = 1 << 20
"""The default of a consumer's max.partition.fetch.bytes; it takes half a millisecond."""


def promised_size(
    stretch: Stretch, counted_bytes: int, to_magic: int, first_offset: int, position: int, first_size: int
) -> int:
    """Return the size to promise for `stretch`, whose batches up to `position` become `first_size` bytes.

    `counted_bytes` is the stored size in KIP-283: that of `stretch`, and of an incomplete batch behind it. The result
    is at most the larger of `first_size` and `counted_bytes`. Reads batches without codec only.
    """
    converted = first_size
    loses_little = converted > LEAST_SHARE * position
    if not loses_little and position - converted < LEAST_LOST_SHARE * (stretch.size_bytes - position):
        # Perhaps the first batch lost only records below the first offset.
        window = window_with_batch(stretch, 0, position)
        whole = kernel_cy.DownConversion(to_magic, ALL_OFFSETS)
        whole_size = whole.measure_batch(window[:position], min(len(window), position))
        loses_little = whole_size > LEAST_SHARE * position and _has_batch_at(stretch, position)
    most = position if loses_little else position + MOST_MEASURED_BYTES
    while converted < position < most:
        window = window_with_batch(stretch, position, MEASURED_BYTES)
        conversion = kernel_cy.DownConversion(to_magic, first_offset)
        converted += conversion.measure_lagging(window, len(window), converted - position)
        position += conversion.position
        if conversion.stop == Stop.AT_END and conversion.position == 0:
            return converted
        if conversion.stop not in (Stop.AT_END, Stop.BATCH_DONE):
            break
    largest = converted + MOST_GROWTH * (stretch.size_bytes - position)
    if loses_little:
        largest = max(largest, stretch.size_bytes)
    return max(first_size, min(largest, counted_bytes))


def _has_batch_at(stretch: Stretch, position: int) -> bool:
    """Return whether there is a complete batch, by its head."""
    head = stretch.window(position, v0.OFFSET_AND_SIZE.size)
    if len(head) < v0.OFFSET_AND_SIZE.size:
        return False
    _, size = v0.OFFSET_AND_SIZE.unpack_from(head)
    return bool(0 < size <= stretch.size_bytes - position - v0.OFFSET_AND_SIZE.size)
