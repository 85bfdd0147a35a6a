"""Plain answers of a leader in compiled steps, against the declared codec and the code for all other answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest

from gregor.broker.metadata.state import PartitionState
from gregor.broker.replicas.partition import Partition
from gregor.broker.replicas.replication import copy_steps_cy
from gregor.broker.replicas.replication.fetch_session import ReplicaFetchSession, around_topics
from gregor.broker.replicas.replication.following import Followed
from gregor.protocol.codec import decode, encode
from gregor.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from gregor.protocol.records.compression import Codec
from gregor.protocol.records.tag_runs import TagRun, TagRuns, one_run
from gregor.storage.clock import ManualClock
from gregor.storage.disk.open_files import OpenFiles
from gregor.storage.log.log_config import LogConfig
from gregor.storage.log.partition_log import PartitionLog
from tests.storage.forgetful_files import ForgetfulFiles
from tests.storage.payloads import marker, payload

VERSION, EPOCH, SESSION = 17, 3, 77
ME, LEADER = 1, 2
MAX_BYTES = 1 << 20
# The upper half of the second id would be a negative int64.
TOPICS = (UUID(int=(5 << 64) + 6), UUID(int=(1 << 127) + (1 << 63) + 9))
FIRST_CORRELATION_ID = 40
RECEIPT_MS = 2_000


def a_log(name: str, config: LogConfig | None = None) -> PartitionLog:
    log = PartitionLog.open(
        f"/logs/{name}", config or LogConfig(), ManualClock(5_000), pool=OpenFiles(ForgetfulFiles())
    )
    log.sole_replica = False
    log.append(payload([b"first"]), leader_epoch=EPOCH)
    return log


def followed_of(log: PartitionLog) -> Followed:
    partition = Partition(log)
    partition.become_follower(PartitionState(log.partition, LEADER, EPOCH, [ME, LEADER], [LEADER], 1))
    return Followed(partition, EPOCH)


def bytes_of(log: PartitionLog, offset: int = 0) -> bytes:
    with log.read(offset, 1 << 20) as found:
        return bytes(found.read())


@dataclass
class Copies:
    """A follower's copies of partitions 0 and 1 of two topics, with the session in which they are fetched."""

    module: ModuleType
    config: LogConfig | None = None
    space: bytearray = field(default_factory=lambda: bytearray(64 * 1024))

    def __post_init__(self) -> None:
        self.followed = {
            (topic.int, index): followed_of(a_log(f"t{number}-{index}", self.config))
            for number, topic in enumerate(TOPICS)
            for index in range(2)
        }
        self.session = ReplicaFetchSession(MAX_BYTES)
        self.session.answered(SESSION)
        self.request()  # after which the leader knows all positions
        empty = FetchRequest(replica_state=ReplicaState(replica_id=ME, replica_epoch=8), max_wait_ms=500)
        self.session.stamp(empty)
        before_epoch, after_topics = around_topics(empty)
        partitions = [
            self.module.CopiedPartition(followed, topic, index, MAX_BYTES)
            for (topic, index), followed in self.followed.items()
        ]
        session_id, session_epoch = self.session.stamped
        self.steps = self.module.CopySteps(
            memoryview(self.space),
            partitions,
            session_id=session_id,
            session_epoch=session_epoch,
            before_epoch=b"\0\1f\0" + before_epoch,
            after_topics=after_topics,
            now_ms=lambda: 9_000,
        )
        self.steps.correlation_id = FIRST_CORRELATION_ID

    def request(self) -> FetchRequest:
        """Return the next request as the code for all answers makes it."""
        request = FetchRequest(replica_state=ReplicaState(replica_id=ME, replica_epoch=8), max_wait_ms=500)
        self.session.fill(request, self.followed.items())
        return request

    def take(self, answer: FetchResponse, change: Callable[[bytes], bytes] = bytes) -> bytes | None:
        body = encode(answer, VERSION)
        frame = self.steps.correlation_id.to_bytes(4, "big") + b"\0" + body
        data = change(len(frame).to_bytes(4, "big") + frame)
        self.space[: len(data)] = data
        request: bytes | None = self.steps.take(len(data))
        return request

    def take_otherwise(self, answer: FetchResponse) -> None:
        """Take an answer with the code for all answers."""
        answer = decode(FetchResponse, encode(answer, VERSION), VERSION)
        for topic in answer.responses:
            for data in topic.partitions:
                followed = self.followed[topic.topic_id.int, data.partition_index]
                followed.take(data, followed.log.log_end_offset)
        self.session.answered(SESSION)

    def state(self) -> list[Any]:
        return [
            (
                bytes_of(log),
                log.log_end_offset,
                log.high_watermark,
                log.last_stable_offset,
                log.producers.snapshot(),
                [(entry.receipt, entry.flags) for entry in log.segments[-1].index.entries_for(0, 1 << 20)],
                followed.lag,
                followed.is_caught_up,
            )
            for followed in self.followed.values()
            for log in [followed.log]
        ]


@pytest.fixture(params=["compiled", "pure python"])
def module(request: pytest.FixtureRequest, pure_modules: dict[str, ModuleType]) -> ModuleType:
    return pure_modules["copy_steps_cy"] if request.param == "pure python" else copy_steps_cy


@pytest.fixture
def copies(module: ModuleType) -> Copies:
    return Copies(module)


def partition_answer(index: int, records: bytes | None, **others: Any) -> PartitionData:
    values = {"high_watermark": 1, "last_stable_offset": 1, "log_start_offset": 0, "aborted_transactions": None}
    tags = {"gregor_tag_runs": one_run(RECEIPT_MS, True).encode()} if records else {}
    return PartitionData(partition_index=index, records=records, **(values | tags | others))


def answer_of(*partitions: tuple[int, PartitionData]) -> FetchResponse:
    """Return an answer with these partitions, each given with the number of its topic."""
    responses: list[FetchableTopicResponse] = []
    for topic, data in partitions:
        if not responses or responses[-1].topic_id != TOPICS[topic]:
            responses.append(FetchableTopicResponse(topic_id=TOPICS[topic]))
        responses[-1].partitions.append(data)
    return FetchResponse(session_id=SESSION, responses=responses)


def appended(*payloads: Any, epoch: int = EPOCH) -> bytes:
    """Return what a leader's log, which begins as the copies do, has after these payloads were appended to it."""
    log = a_log("t-0")
    for each in payloads:
        log.append(each, leader_epoch=epoch)
    return bytes_of(log, 1)


def of_producer(sequence: int, *, is_transactional: bool = False) -> Any:
    return payload([b"p"], producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=is_transactional)


ONE = appended(payload([b"a"]))
PLAIN: dict[str, Sequence[FetchResponse]] = {
    "one record": [answer_of((0, partition_answer(1, ONE)))],
    "records of all partitions": [
        answer_of(*((topic, partition_answer(index, ONE)) for topic in (0, 1) for index in (1, 0)))
    ],
    "a high watermark, and the records of another partition": [
        answer_of((0, partition_answer(0, ONE))),
        answer_of((0, partition_answer(0, b"", high_watermark=2)), (1, partition_answer(1, ONE))),
    ],
    "a high watermark alone": [answer_of((1, partition_answer(1, None)))],
    "several batches": [answer_of((0, partition_answer(0, appended(payload([b"a", b"b"]), payload([b"c" * 500])))))],
    "batches of idempotent producers and of transactions": [
        answer_of((0, partition_answer(0, appended(of_producer(0), of_producer(1))))),
        answer_of((1, partition_answer(0, appended(of_producer(0, is_transactional=True))))),
    ],
    **{
        f"a batch compressed with {codec.name}": [
            answer_of((1, partition_answer(1, appended(payload([b"x" * 300] * 3, codec=codec)))))
        ]
        for codec in Codec
    },
    "records without keys, and tags that say so": [
        answer_of((0, partition_answer(0, ONE, gregor_tag_runs=one_run(RECEIPT_MS, False).encode())))
    ],
    "an empty list of aborted transactions": [answer_of((0, partition_answer(0, ONE, aborted_transactions=[])))],
}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_answer_has_the_effect_that_it_has_without_steps(module: ModuleType, name: str) -> None:
    copies, others = Copies(module), Copies(module)
    for number, answer in enumerate(PLAIN[name], 1):
        data = copies.take(answer)
        assert data is not None
        others.take_otherwise(answer)
        assert copies.state() == others.state()
        assert int.from_bytes(data[:4], "big") == len(data) - 4
        assert data[4:8] == b"\0\1\0\x11"
        assert int.from_bytes(data[8:12], "big") == FIRST_CORRELATION_ID + number == copies.steps.correlation_id
        assert data[12:16] == b"\0\1f\0"
        named = decode(FetchRequest, data[16:], VERSION)
        wanted = decode(FetchRequest, encode(others.request(), VERSION), VERSION)
        assert _sorted(named) == _sorted(wanted)
    copies.session.continued_in_steps(copies.steps)
    assert copies.request().topics == [], "the leader knows all positions"
    assert copies.session.stamped == others.session.stamped


def _sorted(request: FetchRequest) -> FetchRequest:
    """Return the request with its topics and partitions in one order: the leader's answer has another one."""
    for topic in request.topics:
        topic.partitions.sort(key=lambda each: each.partition)
    request.topics.sort(key=lambda each: each.topic_id.int)
    return request


def test_records_without_tags_are_received_now(copies: Copies) -> None:
    assert copies.take(answer_of((0, partition_answer(0, ONE, gregor_tag_runs=None)))) is not None
    segment = copies.followed[TOPICS[0].int, 0].log.segments[-1]
    assert segment.index.last_tags(segment.size_bytes - 1) == (9_000, 0)


def test_records_are_flushed_after_flush_messages(module: ModuleType) -> None:
    copies = Copies(module, LogConfig(flush_messages=2))
    log = copies.followed[TOPICS[0].int, 0].log
    assert copies.take(answer_of((0, partition_answer(0, ONE)))) is not None
    assert log.recovery_point == log.log_end_offset == 2


def cut(data: bytes) -> bytes:
    return data[:-1]


def with_more(data: bytes) -> bytes:
    return data + b"\0"


def with_another_id(data: bytes) -> bytes:
    return data[:7] + b"\x63" + data[8:]


def with_damage(data: bytes) -> bytes:
    place = data.index(b"first") if b"first" in data else data.rindex(b"a")
    return data[:place] + b"?" + data[place + 1 :]


OTHER_SESSION = answer_of((0, partition_answer(0, ONE)))
OTHER_SESSION.session_id = SESSION + 1
FAILED = answer_of((0, partition_answer(0, ONE)))
FAILED.error_code = 70
UNKNOWN_TOPIC = answer_of((0, partition_answer(0, ONE)))
UNKNOWN_TOPIC.responses[0].topic_id = UUID(int=99)
WRAPPER_TAGS = TagRuns([TagRun(0, RECEIPT_MS, True, 1, 1)]).encode()
LATER_TAGS = TagRuns([TagRun(5, RECEIPT_MS)]).encode()
TWO_RUNS = TagRuns([TagRun(0, RECEIPT_MS), TagRun(40, RECEIPT_MS + 1)]).encode()
OTHERS: dict[str, FetchResponse] = {
    "no partitions": FetchResponse(session_id=SESSION),
    "another session": OTHER_SESSION,
    "an error of the request": FAILED,
    "an unknown topic": UNKNOWN_TOPIC,
    "an unknown partition": answer_of((0, partition_answer(2, ONE))),
    "an error of a partition": answer_of((0, partition_answer(0, ONE)), (1, partition_answer(0, b"", error_code=6))),
    "a diverging epoch": answer_of(
        (0, partition_answer(0, b"", diverging_epoch=EpochEndOffset(epoch=1, end_offset=1)))
    ),
    "an aborted transaction": answer_of((0, partition_answer(0, ONE, aborted_transactions=[AbortedTransaction()]))),
    "a preferred replica": answer_of((0, partition_answer(0, ONE, preferred_read_replica=3))),
    "a later log start": answer_of((0, partition_answer(0, ONE, log_start_offset=1))),
    "a new leader epoch": answer_of((0, partition_answer(0, appended(payload([b"a"]), epoch=EPOCH + 1)))),
    "a gap": answer_of((0, partition_answer(0, appended(payload([b"a"]), payload([b"b"]))[len(ONE) :]))),
    "records that the copy has": answer_of((0, partition_answer(0, bytes_of(a_log("t-0"))))),
    "an incomplete batch": answer_of((0, partition_answer(0, (ONE + ONE)[: len(ONE) + 20]))),
    "a batch of format v1": answer_of((0, partition_answer(0, appended(payload([b"a"], magic=1))))),
    "a batch of format v0": answer_of((0, partition_answer(0, appended(payload([b"a"], magic=0))))),
    "a control batch": answer_of(
        (0, partition_answer(0, appended(of_producer(0, is_transactional=True), marker(is_abort=True, producer_id=7))))
    ),
    "tags of a wrapper": answer_of((0, partition_answer(0, ONE, gregor_tag_runs=WRAPPER_TAGS))),
    "tags that begin later": answer_of((0, partition_answer(0, ONE, gregor_tag_runs=LATER_TAGS))),
    "two runs of tags": answer_of((0, partition_answer(0, ONE, gregor_tag_runs=TWO_RUNS))),
}
CHANGES = (cut, with_more, with_another_id, with_damage)


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_answer_is_left_untouched(copies: Copies, name: str) -> None:
    before = copies.state()
    assert copies.take(OTHERS[name]) is None
    assert copies.state() == before
    assert copies.steps.correlation_id == FIRST_CORRELATION_ID
    assert copies.steps.moved == []


@pytest.mark.parametrize("change", CHANGES)
def test_an_answer_that_is_incomplete_or_damaged_is_left_untouched(
    copies: Copies, change: Callable[[bytes], bytes]
) -> None:
    before = copies.state()
    assert copies.take(answer_of((0, partition_answer(1, ONE)), (1, partition_answer(0, ONE))), change) is None
    assert copies.state() == before


def test_no_prefix_and_no_changed_byte_of_an_answer_reads_beyond_it(copies: Copies) -> None:
    whole = answer_of((0, partition_answer(1, b"")), (1, partition_answer(0, b"", high_watermark=0)))
    size = len(encode(whole, VERSION)) + 9
    for length in range(1, size):
        told = (length - 4).to_bytes(4, "big", signed=True)
        assert copies.take(whole, lambda data, n=length, told=told: (told + data[4:])[:n]) is None  # type: ignore[misc]
    for place in range(4, size):
        for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
            copies.take(whole, lambda data, at=place, value=byte: data[:at] + bytes([value]) + data[at + 1 :])  # type: ignore[misc]
    assert [followed.log.log_end_offset for followed in copies.followed.values()] == [1, 1, 1, 1]


def test_a_partition_that_is_led_here_now_is_left_to_others(copies: Copies) -> None:
    followed = copies.followed[TOPICS[0].int, 0]
    followed.partition.become_follower(PartitionState(0, LEADER, EPOCH + 1, [ME, LEADER], [LEADER], 2))
    assert copies.take(answer_of((0, partition_answer(0, ONE)))) is None


def test_a_copy_that_was_changed_otherwise_is_left_to_others(copies: Copies) -> None:
    copies.followed[TOPICS[0].int, 0].log.append(payload([b"x"]), leader_epoch=EPOCH)
    assert copies.take(answer_of((0, partition_answer(0, ONE)))) is None


def test_steps_that_are_over_take_nothing(copies: Copies) -> None:
    copies.steps.is_over = True
    assert copies.take(answer_of((0, partition_answer(0, ONE)))) is None
