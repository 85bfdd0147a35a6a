"""Generated topics: equal in each run, in every format, and with the requested skew."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gregor.client.producer.partitioner import partition_for_key
from gregor.pipeline.synthetic.synthetic import Recipe, RecipeError
from gregor.protocol.records.batches import iter_batches, iter_records
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.record import Record

SMALL = Recipe(seed=7, records=1000, partitions=3, value_bytes=40, keys=50, key_skew=1.0, batch_records=64)


def records_of(recipe: Recipe, partition: int, from_offset: int = 0) -> list[Record]:
    """Return a partition, decoded."""
    stored = b"".join(recipe.batches(partition, from_offset=from_offset))
    return [record for batch in iter_batches(stored) for record in iter_records(batch)]


def test_equal_recipes_give_equal_batches_and_another_seed_other_records() -> None:
    again = Recipe(seed=7, records=1000, partitions=3, value_bytes=40, keys=50, key_skew=1.0, batch_records=64)
    other = Recipe(seed=8, records=1000, partitions=3, value_bytes=40, keys=50, key_skew=1.0, batch_records=64)
    assert [list(SMALL.batches(p)) for p in range(3)] == [list(again.batches(p)) for p in range(3)]
    assert records_of(SMALL, 0) != records_of(other, 0)


@given(st.integers(0, 400))
def test_records_can_be_made_from_any_offset(from_offset: int) -> None:
    rest = records_of(SMALL, 1, from_offset)
    first = from_offset - from_offset % SMALL.batch_records
    assert rest == [record for record in records_of(SMALL, 1) if record.offset >= first]


@given(st.integers(0, 500), st.integers(1, 9), st.integers(0, 20), st.floats(0, 3))
def test_every_record_has_its_partition(records: int, partitions: int, keys: int, skew: float) -> None:
    recipe = Recipe(seed=1, records=records, partitions=partitions, value_bytes=1, keys=keys, key_skew=skew)
    counts = recipe.partition_records()
    assert sum(counts) == records
    for partition, count in enumerate(counts):
        found = records_of(recipe, partition)
        assert [record.offset for record in found] == list(range(count))
        if keys:
            assert all(partition_for_key(record.key or b"", partitions) == partition for record in found)
    if not keys:
        assert max(counts) - min(counts) <= 1


def test_skew_follows_zipf() -> None:
    recipe = Recipe(seed=1, records=20_000, partitions=1, value_bytes=0, keys=10, key_skew=1.0)
    counted = Counter(record.key for record in records_of(recipe, 0))
    assert counted[b"key-0"] == pytest.approx(2 * counted[b"key-1"], rel=0.1)
    assert counted[b"key-0"] == pytest.approx(10 * counted[b"key-9"], rel=0.2)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_all_message_formats_hold_the_same_records_except_timestamps_in_v0(codec: Codec) -> None:
    made = [
        records_of(Recipe(seed=3, records=300, partitions=1, value_bytes=20, keys=5, magic=magic, codec=codec), 0)
        for magic in (0, 1, 2)
    ]
    assert made[1] == made[2]
    assert [(r.key, r.value) for r in made[0]] == [(r.key, r.value) for r in made[1]]
    assert all(later.timestamp == earlier.timestamp + 1 for earlier, later in pairwise(made[2]))


def test_the_repetitive_share_is_what_compresses() -> None:
    sizes = []
    for share in (0.0, 0.5, 1.0):
        recipe = Recipe(seed=3, records=500, partitions=1, value_bytes=1000, repetitive=share)
        sizes.append(len(compress(Codec.GZIP, b"".join(recipe.batches(0)))))
    assert sizes[0] > 500_000
    assert sizes[1] == pytest.approx(sizes[0] / 2, rel=0.1)
    assert sizes[2] < 20_000


@pytest.mark.parametrize(
    "options",
    [{"partitions": 0}, {"records": -1}, {"repetitive": 1.1}, {"batch_records": 0}, {"magic": 1, "codec": Codec.ZSTD}],
)
def test_invalid_recipes_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(RecipeError):
        Recipe(**{"seed": 1, "records": 1, "partitions": 1, "value_bytes": 1, **options})  # type: ignore[arg-type]
