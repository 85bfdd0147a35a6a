"""Transactional producers of the fail-over torture: writers, and copiers of committed records, exactly once.

`TransactionalScene` runs them all in a thread of its own. What a broker has answered is noted beside each transaction:
only a commit whose answer was lost may have ended either way.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any, Self

import trio

from gregor.client import Consumer, ConsumerRecord, Producer
from gregor.client.errors import ClientError
from gregor.protocol.errors import BrokerError

LEDGER, COPIES = "ledger", "copies"
"""Writers write to the one, copiers copy each of its partitions to the partition of that number of the other."""
PARTITIONS = 6
WRITERS = ("writer-a", "writer-b", "writer-c")
COPIERS = {"copier-a": range(3), "copier-b": range(3, PARTITIONS)}
"""Transactional ids, and the partitions of the ledger that each copies."""
GROUP = "copiers"
PATIENCE: dict[str, Any] = {"request_timeout_ms": 4_000, "max_block_ms": 20_000, "retry_backoff_ms": 20}
"""A stopped broker does not answer; after this time a producer is replaced by a new one."""
RECORDS_TO_COPY = 60
DELIBERATE_ABORTS = 0.2

Place = tuple[str, int]


class DeliberateAbortError(Exception):
    """An error that leaves the block of a transaction and so aborts it."""


class Outcome(Enum):
    """The outcome of a transaction, as far as its producer knows it."""

    ABORTED = auto()
    """A commit was never asked for."""
    UNKNOWN = auto()
    COMMITTED = auto()


@dataclass(slots=True)
class WrittenTransaction:
    """The values that one transaction wrote to each partition of the ledger, in order."""

    outcome: Outcome = Outcome.ABORTED
    values: dict[int, list[bytes]] = field(default_factory=dict)


class Participant:
    """A transactional id that continues with a new producer after each error."""

    def __init__(self, bootstrap: str, name: str, dice: random.Random) -> None:
        self.name = name
        self.troubles: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._dice = dice

    async def run(self) -> None:
        """Run transactions until no work is left."""
        while True:
            try:
                async with Producer(self._bootstrap, transactional_id=self.name, **PATIENCE) as producer:
                    await self._work(producer)
                    return
            except (ClientError, BrokerError) as trouble:
                self.troubles[str(trouble)] += 1
                await trio.sleep(0.05)

    async def _work(self, producer: Producer) -> None:
        raise NotImplementedError


class Writer(Participant):
    """A participant that writes transactions of a few records to some partitions."""

    def __init__(self, bootstrap: str, name: str, dice: random.Random, is_over: Callable[[], bool]) -> None:
        super().__init__(bootstrap, name, dice)
        self.transactions: list[WrittenTransaction] = []
        self._is_over = is_over

    async def _work(self, producer: Producer) -> None:
        while not self._is_over():
            await self._write(producer)

    async def _write(self, producer: Producer) -> None:
        dice = self._dice
        number, written = len(self.transactions), WrittenTransaction()
        self.transactions.append(written)
        try:
            async with producer.transaction():
                deliveries = []
                for partition in dice.sample(range(PARTITIONS), dice.randint(1, 4)):
                    values = [f"{self.name} {number} {index}".encode() for index in range(dice.randint(1, 4))]
                    written.values[partition] = values
                    deliveries += [await producer.send(LEDGER, value, partition=partition) for value in values]
                if dice.random() < DELIBERATE_ABORTS / 2:
                    raise DeliberateAbortError("with records under way")
                for delivery in deliveries:
                    await delivery
                if dice.random() < DELIBERATE_ABORTS / 2:
                    raise DeliberateAbortError("with all records written")
                written.outcome = Outcome.UNKNOWN
        except DeliberateAbortError:
            return
        written.outcome = Outcome.COMMITTED


class LibrdkafkaWriter:
    """A writer with another client, in a process of its own (`librdkafka_writer.py`)."""

    def __init__(self, python: str, bootstrap: str, directory: Path) -> None:
        """Take ``python``, an interpreter that has confluent-kafka."""
        self.name = "librdkafka"
        self.transactions: list[WrittenTransaction] = []
        self._output, errors = directory / "librdkafka.out", directory / "librdkafka.err"
        script = str(Path(__file__).with_name("librdkafka_writer.py"))
        with self._output.open("wb") as output, errors.open("wb") as error_output:
            self._process = subprocess.Popen(
                [python, script, bootstrap, self.name, "1", LEDGER, str(PARTITIONS)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=error_output,
            )

    def finish(self, limit_s: float) -> None:
        """Let the writer end its open transaction, and read the transactions that it has recorded."""
        self._process.communicate(timeout=limit_s)
        assert self._process.returncode == 0
        for line in self._output.read_text().splitlines():
            outcome, values = json.loads(line)
            written = {int(partition): [value.encode() for value in held] for partition, held in values.items()}
            self.transactions.append(WrittenTransaction(Outcome[outcome], written))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


class Copier(Participant):
    """A participant that commits its consumed offsets and its written records in one transaction."""

    def __init__(self, bootstrap: str, name: str, dice: random.Random, is_over: Callable[[], bool]) -> None:
        """Take ``is_over``, which returns whether the ledger is complete."""
        super().__init__(bootstrap, name, dice)
        self.transactions = 0
        self._places = [(LEDGER, partition) for partition in COPIERS[name]]
        self._is_over = is_over

    async def _work(self, producer: Producer) -> None:
        # The producer starts first: it ends the open transaction of the last producer, and then offsets are final.
        async with reader(self._bootstrap, group_id=GROUP) as consumer:
            consumer.assign(self._places)
            while True:
                is_over = self._is_over()
                records = await consumer.poll(timeout_ms=300, max_records=self._dice.randint(1, RECORDS_TO_COPY))
                if records:
                    await self._copy(producer, consumer, records)
                elif is_over and await self._is_at_end(consumer):
                    return

    async def _is_at_end(self, consumer: Consumer) -> bool:
        # A commit is acknowledged before its markers are written: until then a reader of committed records has an
        # earlier end, and would miss the last transactions.
        async with Consumer(self._bootstrap, request_timeout_ms=PATIENCE["request_timeout_ms"]) as uncommitted:
            ends = await uncommitted.end_offsets(self._places)
        return all(consumer.position(*place) == end for place, end in ends.items())

    async def _copy(self, producer: Producer, consumer: Consumer, records: list[ConsumerRecord]) -> None:
        first: dict[Place, int] = {}
        behind: dict[Place, int] = {}
        for record in records:
            first.setdefault((LEDGER, record.partition), record.offset)
            behind[LEDGER, record.partition] = record.offset + 1
        try:
            async with producer.transaction():
                for record in records:
                    await producer.send(COPIES, record.value, partition=record.partition)
                await producer.send_offsets_to_transaction(GROUP, behind)
                if self._dice.random() < DELIBERATE_ABORTS:
                    raise DeliberateAbortError("with offsets sent")
        except DeliberateAbortError:
            for place, offset in first.items():
                consumer.seek(*place, offset)
            return
        self.transactions += 1


class TransactionalScene(threading.Thread):
    """A set of all writers and copiers, which work until `finish`."""

    def __init__(self, bootstrap: str, dice: random.Random, foreign: LibrdkafkaWriter | None = None) -> None:
        super().__init__(name="transactions", daemon=True)
        self.failure: BaseException | None = None
        self.foreign = foreign
        self._finishing = threading.Event()
        self._has_foreign_finished = foreign is None
        self._own_at_work = len(WRITERS)

        def dice_of_its_own() -> random.Random:
            return random.Random(dice.random())

        self._own = [Writer(bootstrap, name, dice_of_its_own(), self._finishing.is_set) for name in WRITERS]
        self._copiers = [Copier(bootstrap, name, dice_of_its_own(), self._is_all_written) for name in COPIERS]

    @property
    def writers(self) -> list[Writer | LibrdkafkaWriter]:
        """All participants that write to the ledger."""
        return [*self._own, self.foreign] if self.foreign else [*self._own]

    def _is_all_written(self) -> bool:
        return self._own_at_work == 0 and self._has_foreign_finished

    def run(self) -> None:
        try:
            trio.run(self._run)
        except BaseException as failure:
            self.failure = failure

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            for writer in self._own:
                nursery.start_soon(self._run_writer, writer)
            for copier in self._copiers:
                nursery.start_soon(copier.run)

    async def _run_writer(self, writer: Writer) -> None:
        await writer.run()
        self._own_at_work -= 1

    def check(self) -> None:
        """Raise the error that ended the thread."""
        if self.failure is not None:
            raise self.failure

    def finish(self, limit_s: float) -> None:
        """Start no further transactions, and wait until the copies are complete."""
        self._finishing.set()
        if self.foreign is not None:
            self.foreign.finish(limit_s)
            self._has_foreign_finished = True
        self.join(limit_s)
        self.check()
        assert not self.is_alive(), f"not all is copied {limit_s} s after the last trouble: {self.summary()}"

    def summary(self) -> str:
        """Return the counts in words, and the errors of our own participants."""
        counts = Counter(written.outcome for writer in self.writers for written in writer.transactions)
        troubles = sum((participant.troubles for participant in (*self._own, *self._copiers)), Counter[str]())
        foreign = f", {len(self.foreign.transactions)} of these by librdkafka" if self.foreign else ""
        return (
            f"transactions: {counts[Outcome.COMMITTED]} committed, {counts[Outcome.ABORTED]} aborted, "
            f"{counts[Outcome.UNKNOWN]} of unknown outcome{foreign}; "
            f"{sum(copier.transactions for copier in self._copiers)} of copiers; troubles: {dict(troubles)}"
        )


def reader(bootstrap: str, **config: object) -> Consumer:
    """Return a consumer of committed records, from the beginning; it commits no offsets by itself."""
    return Consumer(
        bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        request_timeout_ms=PATIENCE["request_timeout_ms"],
        **config,
    )
