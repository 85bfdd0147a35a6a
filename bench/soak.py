"""A soak test: clients of all versions for a while, and the broker's memory meanwhile.

    python -m bench.soak --minutes 60 --csv rss.csv

Producers of each format and codec, consumers of each version, batches that are refused, short connections, slow
consumers: their memory must be released, so the curve must be flat after the first minutes. One line is printed per
minute; the last one compares the second fifth of the time with the last fifth.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import snappy

from gregor.protocol.apis import ApiKey
from gregor.protocol.messages.api_versions import ApiVersionsRequest
from gregor.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from gregor.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from gregor.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from gregor.protocol.messages.metadata import MetadataRequest
from gregor.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from gregor.protocol.records import v0, v1, v2
from gregor.protocol.records.compression import Codec, compress
from gregor.protocol.records.record import Record
from tests.broker_process import BrokerProcess, running_broker
from tests.wire import Wire, resident_bytes

MIB = 1 << 20
SAMPLE_S = 5
PARTITIONS = 4
OLD_PRODUCE_VERSIONS = {v0.MAGIC: 1, v1.MAGIC: 2, v2.MAGIC: 8}
FETCH_VERSIONS = (0, 1, 2, 3, 4, 11)
LIMITS = ("log.segment.bytes=8388608", "log.retention.bytes=16777216", "log.retention.check.interval.ms=5000")
FORMATS = [
    (codec, magic)
    for codec in Codec
    for magic in (v0.MAGIC, v1.MAGIC, v2.MAGIC)
    if codec is not Codec.ZSTD or magic == v2.MAGIC
]


def topic_of(codec: Codec, magic: int) -> str:
    """Return the topic for batches of one format and codec."""
    return f"{codec.name.lower()}-v{magic}"


def batch_of(chance: random.Random, codec: Codec, magic: int) -> bytes:
    """Return a batch of random size, from 100 bytes to half a megabyte."""
    count, size_bytes = chance.choice([(1, 100), (20, 500), (100, 1000), (10, 50_000)])
    now_ms = time.time_ns() // 1_000_000
    values = [chance.randbytes(size_bytes // 2) + bytes(size_bytes // 2) for _ in range(count)]
    records = [Record(index, now_ms, b"k%d" % index, value) for index, value in enumerate(values)]
    if magic == v2.MAGIC:
        return v2.build_batch(records, codec=codec)
    build = v0.build_message_set if magic == v0.MAGIC else v1.build_message_set
    return bytes(build(records, codec=codec))


def produce(topic: str, partition: int, data: bytes) -> ProduceRequest:
    """Return a request with one batch."""
    part = PartitionProduceData(index=partition, records=data)
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[part])])


def produce_any(wire: Wire, chance: random.Random) -> None:
    """Append a batch of any format."""
    codec, magic = chance.choice(FORMATS)
    request = produce(topic_of(codec, magic), chance.randrange(PARTITIONS), batch_of(chance, codec, magic))
    wire.ask(ApiKey.PRODUCE, OLD_PRODUCE_VERSIONS[magic], request)


def produce_bad(wire: Wire, chance: random.Random) -> None:
    """Send a batch that is refused: broken data, zeros that are no records, a wrong CRC."""
    codec = chance.choice(list(Codec)[1:])
    bodies = (
        chance.randbytes(100_000),
        compress(codec, bytes(5_000_000)),
        snappy.compress(bytes(19_000_000)) if codec is Codec.SNAPPY else b"",
    )
    batch = bytearray(
        v2.assemble_batch(
            chance.choice(bodies),
            record_count=5,
            base_offset=0,
            last_offset=4,
            attributes=codec,
            base_timestamp=0,
            max_timestamp=0,
        )
    )
    if chance.random() < 0.3:
        batch[v2.CRC_AT] ^= 1
    wire.ask(ApiKey.PRODUCE, 8, produce(topic_of(codec, v2.MAGIC), 0, bytes(batch)))


def earliest_offset(wire: Wire, topic: str, partition: int) -> int:
    """Return the first offset of a partition now."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-2)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    return int(wire.ask(ApiKey.LIST_OFFSETS, 1, request).topics[0].partitions[0].offset)


def fetch_request(wire: Wire, chance: random.Random) -> FetchRequest:
    """Return a fetch of some partitions of one topic from near their beginning."""
    topic = topic_of(*chance.choice(FORMATS))
    wanted = [
        FetchPartition(
            partition=index,
            fetch_offset=earliest_offset(wire, topic, index) + chance.choice((0, 0, 7)),
            partition_max_bytes=chance.choice((10_000, 100_000, MIB)),
        )
        for index in range(PARTITIONS)
    ]
    return FetchRequest(
        max_wait_ms=10, min_bytes=1, max_bytes=8 * MIB, topics=[FetchTopic(topic=topic, partitions=wanted)]
    )


def fetch_any(wire: Wire, chance: random.Random) -> None:
    """Fetch with any version, and read the whole answer."""
    request = fetch_request(wire, chance)
    wire.send(ApiKey.FETCH, chance.choice(FETCH_VERSIONS), request)
    size_bytes = int.from_bytes(wire.read(4), "big")
    while size_bytes:
        size_bytes -= len(wire.socket.recv(min(MIB, size_bytes)))


def fetch_slowly(wire: Wire, chance: random.Random) -> None:
    """Fetch with an old version, and read 64 kB ten times a second."""
    request = fetch_request(wire, chance)
    wire.send(ApiKey.FETCH, chance.choice((1, 3)), request)
    size_bytes = int.from_bytes(wire.read(4), "big")
    while size_bytes:
        size_bytes -= len(wire.socket.recv(min(65536, size_bytes)))
        time.sleep(0.1)


def ask_little(wire: Wire, chance: random.Random) -> None:
    """Request metadata and versions, sometimes from a connection of its own."""
    wire.ask(ApiKey.METADATA, 5, MetadataRequest(topics=None))
    with Wire((wire.socket.getpeername()[0], wire.socket.getpeername()[1])) as other:
        other.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="soak", client_software_version="1"))
    time.sleep(chance.random() / 10)


ROLES: tuple[Callable[[Wire, random.Random], None], ...] = (
    produce_any,
    produce_any,
    fetch_any,
    fetch_any,
    produce_bad,
    ask_little,
    *(fetch_slowly,) * 10,
)


class Soak:
    """The clients of one broker, each in a thread, until `stop`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._stopping = threading.Event()
        self.counts = [0] * len(ROLES)
        self._threads = [threading.Thread(target=self._play, args=(index,)) for index in range(len(ROLES))]

    def start(self) -> None:
        """Start all clients."""
        with Wire(self._broker.address) as wire:
            topics = [
                CreatableTopic(name=topic_of(*each), num_partitions=PARTITIONS, replication_factor=1)
                for each in FORMATS
            ]
            wire.ask(ApiKey.CREATE_TOPICS, 4, CreateTopicsRequest(topics=topics, timeout_ms=60_000))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop each client after its current request."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _play(self, index: int) -> None:
        chance = random.Random(index)
        with Wire(self._broker.address) as wire:
            while not self._stopping.is_set():
                ROLES[index](wire, chance)
                self.counts[index] += 1


def main() -> None:
    """Soak a broker, print its memory, and write each sample to a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--csv", type=Path, help="where to write seconds, MiB resident, requests")
    arguments = parser.parse_args()
    samples: list[float] = []
    lines = ["seconds,resident_mib,requests"]
    with (
        tempfile.TemporaryDirectory() as directory,
        running_broker(Path(directory), *LIMITS, keeps_old_records=True) as broker,
    ):
        soak = Soak(broker)
        soak.start()
        began = time.monotonic()
        try:
            while (elapsed := time.monotonic() - began) < arguments.minutes * 60:
                time.sleep(SAMPLE_S)
                samples.append(resident_bytes(broker.pid) / MIB)
                lines.append(f"{elapsed:.0f},{samples[-1]:.1f},{sum(soak.counts)}")
                if arguments.csv:
                    arguments.csv.write_text("\n".join(lines) + "\n")
                if len(samples) % (60 // SAMPLE_S) == 0:
                    print(f"{elapsed / 60:5.1f} min  {samples[-1]:6.1f} MiB  {sum(soak.counts)} requests", flush=True)
        finally:
            soak.stop()
    fifth = max(1, len(samples) // 5)
    early, late = statistics.median(samples[fifth : 2 * fifth]), statistics.median(samples[-fifth:])
    print(f"second fifth {early:.1f} MiB, last fifth {late:.1f} MiB, most {max(samples):.1f} MiB")


if __name__ == "__main__":
    main()
