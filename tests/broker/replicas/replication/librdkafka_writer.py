"""A transactional writer by librdkafka, run by an interpreter that has confluent-kafka.

    python librdkafka_writer.py BOOTSTRAP TRANSACTIONAL_ID SEED TOPIC PARTITIONS

Writes until its standard input ends. Prints for each transaction [outcome, {partition: values}] as a line of JSON.
"""

from __future__ import annotations

import json
import random
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import KafkaException, Producer

PATIENCE_S = 20.0
DELIBERATE_ABORTS = 0.2


@dataclass
class Written:
    """A transaction; without an answer to its commit the outcome is unknown."""

    outcome: str = "ABORTED"
    values: dict[int, list[str]] = field(default_factory=dict)


class BeginAnewError(Exception):
    """An error after which only a new producer with this id can continue."""


def again_while_retriable(step: Callable[..., object], *arguments: object) -> None:
    """Do a step of a transaction until it is done or refused. Raises KafkaException, BeginAnewError."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            step(*arguments)
        except KafkaException as trouble:
            error = trouble.args[0]
            if error.txn_requires_abort():
                raise
            if not error.retriable() or time.monotonic() > deadline:
                raise BeginAnewError from trouble
        else:
            return


def abort(producer: Producer) -> None:
    """Abort the open transaction."""
    try:
        again_while_retriable(producer.abort_transaction, PATIENCE_S)
    except KafkaException as trouble:
        raise BeginAnewError from trouble


def write_one(
    producer: Producer, dice: random.Random, label: str, topic: str, partitions: int, written: Written
) -> None:
    """Run one transaction of values that begin with ``label``; ``written`` is filled on the way."""
    producer.begin_transaction()
    for partition in dice.sample(range(partitions), dice.randint(1, 4)):
        written.values[partition] = [f"{label} {index}" for index in range(dice.randint(1, 4))]
        for value in written.values[partition]:
            producer.produce(topic, value.encode(), partition=partition)
    if dice.random() < DELIBERATE_ABORTS:
        abort(producer)
        return
    try:
        again_while_retriable(producer.flush, PATIENCE_S)
        written.outcome = "UNKNOWN"
        again_while_retriable(producer.commit_transaction, PATIENCE_S)
        written.outcome = "COMMITTED"
    except KafkaException:
        # The error says that nothing was committed.
        abort(producer)
        written.outcome = "ABORTED"


def main(bootstrap: str, name: str, seed: str, topic: str, partitions: str) -> None:
    """Write until standard input ends, with a new producer whenever the last one cannot go on."""
    dice = random.Random(int(seed))
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "socket.timeout.ms": 4000, "linger.ms": 0}
    settings |= {"retry.backoff.ms": 20, "log_level": 0}
    number = 0
    is_over = False
    while not is_over:
        producer = Producer(settings)
        try:
            again_while_retriable(producer.init_transactions, PATIENCE_S)
            while not (is_over := bool(select.select([sys.stdin], [], [], 0)[0])):
                written = Written()
                try:
                    write_one(producer, dice, f"{name} {number}", topic, int(partitions), written)
                finally:
                    number += 1
                    print(json.dumps([written.outcome, written.values]), flush=True)
        except (BeginAnewError, KafkaException) as trouble:
            print(repr(trouble.__cause__ or trouble), file=sys.stderr, flush=True)


main(*sys.argv[1:])
