"""Hypothesis strategies for records and whole batches of every format and codec."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hypothesis import strategies as st

from gregor.protocol.errors import BrokerError, ErrorCode
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.record import NO_TIMESTAMP, Header, Record

OLD_CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
ALL_CODECS = tuple(Codec)

data = st.none() | st.binary(max_size=80) | st.binary(min_size=1, max_size=4).map(lambda seed: seed * 200)
timestamps = st.just(NO_TIMESTAMP) | st.integers(0, 2**45)
headers = st.lists(st.builds(Header, st.binary(max_size=9), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)


DOCUMENTED = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}


@contextmanager
def documented_failures() -> Iterator[None]:
    """Let the block succeed, or fail with an error that the records package documents."""
    try:
        yield
    except BrokerError as failure:
        if failure.code not in DOCUMENTED:
            raise


@dataclass
class Sample:
    """A batch as built, and the records that it should hold."""

    magic: int
    codec: Codec
    records: list[Record]
    data: bytes


def numbered(records: list[Record]) -> list[Record]:
    return [record._replace(offset=index) for index, record in enumerate(records)]


v2_records = st.lists(st.builds(Record, st.just(0), timestamps, data, data, headers), min_size=1, max_size=12).map(
    numbered
)
v1_records = st.lists(st.builds(Record, st.just(0), timestamps, data, data, st.just(())), min_size=1, max_size=12).map(
    numbered
)
v0_records = st.lists(
    st.builds(Record, st.just(0), st.just(NO_TIMESTAMP), data, data, st.just(())), min_size=1, max_size=12
).map(numbered)

v2_samples = st.builds(
    lambda records, codec: Sample(2, codec, records, v2.build_batch(records, codec=codec)),
    v2_records,
    st.sampled_from(ALL_CODECS),
)
v1_samples = st.builds(
    lambda records, codec: Sample(1, codec, records, v1.build_message_set(records, codec=codec)),
    v1_records,
    st.sampled_from(OLD_CODECS),
)
v0_samples = st.builds(
    lambda records, codec: Sample(0, codec, records, v0.build_message_set(records, codec=codec)),
    v0_records,
    st.sampled_from(OLD_CODECS),
)
samples = v0_samples | v1_samples | v2_samples
