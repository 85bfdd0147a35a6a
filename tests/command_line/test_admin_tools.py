"""Quotas, credentials, groups of the consumer protocol and the mirror, from the command line."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
import trio

from gregor.client import Consumer
from tests.broker_process import BrokerProcess, running_broker
from tests.command_line.test_client_tools import run
from tests.waiting import PATIENCE_S


def test_quotas_and_scram_credentials_are_altered_and_described(broker_process: BrokerProcess) -> None:
    user = f"u-{uuid4().hex[:8]}"
    entity = ("--entity-type", "users", "--entity-name", user)
    changed = run(
        broker_process,
        "configs", "--alter", *entity, "--entity-type", "clients", "--entity-default",
        "--add-config", "producer_byte_rate=1000,request_percentage=50",
    )  # fmt: skip
    assert changed.lines == [f"Completed updating config for user-principal '{user}', the default client-id."]
    changed = run(
        broker_process, "configs", "--alter", "--user", user, "--add-config", "SCRAM-SHA-256=[password=secret]"
    )
    assert changed.code == 0
    quotas = f"Quota configs for user-principal '{user}', the default client-id are "
    assert run(broker_process, "configs", "--describe", *entity).lines == [
        quotas + "producer_byte_rate=1000.0, request_percentage=50.0",
        f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=4096",
    ]
    for taken_back in ("SCRAM-SHA-256", ""):
        options = ("--delete-config", taken_back) if taken_back else ("--delete-config", "producer_byte_rate")
        kinds = () if taken_back else ("--entity-type", "clients", "--entity-default")
        assert run(broker_process, "configs", "--alter", *entity, *kinds, *options).code == 0
    assert run(broker_process, "configs", "--describe", *entity).lines == [quotas + "request_percentage=50.0"]


def test_invalid_quotas_and_scram_credentials_are_refused(broker_process: BrokerProcess) -> None:
    for words, reason in (
        (
            ("--entity-type", "users", "--entity-name", "u", "--add-config", "producer_byte_rate=fast"),
            "must be a number",
        ),
        (("--entity-type", "users", "--entity-default", "--add-config", "SCRAM-SHA-256=[password=x]"), "one user"),
        (("--user", "u", "--add-config", "SCRAM-SHA-256=[iterations=4096]"), "must look like"),
        (("--entity-type", "users", "--add-config", "producer_byte_rate=1"), "needs --entity-name"),
        (("--entity-type", "users", "--entity-type", "topics", "--add-config", "a=1"), "alone"),
        (("--user", "u"), "--add-config"),
    ):
        refused = run(broker_process, "configs", "--alter", *words)
        assert refused.code == 1
        assert reason in refused.err


def test_a_group_of_the_consumer_protocol_is_described(broker_process: BrokerProcess) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    run(broker_process, "topics", "--create", "--topic", topic, "--partitions", "2")

    async def describe_while_it_is_there() -> tuple[str, str]:
        async with Consumer(broker_process.bootstrap, group_id=f"g-{topic}", group_protocol="consumer") as consumer:
            consumer.subscribe([topic])
            with trio.fail_after(PATIENCE_S):
                while len(consumer.assignment()) < 2:
                    await consumer.poll(50)
            describe = ("groups", "--describe", "--group", f"g-{topic}")
            members = await trio.to_thread.run_sync(run, broker_process, *describe, "--members", "--verbose")
            state = await trio.to_thread.run_sync(run, broker_process, *describe, "--state")
            return members.out, state.out

    members, state = trio.run(describe_while_it_is_there)
    assert f"{topic}(0), {topic}(1)" in members
    assert "Stable" in state


def test_mirror_once_copies_new_records_to_the_target(broker_process: BrokerProcess, tmp_path: Path) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    run(broker_process, "produce", "--topic", topic, text="".join(f"{n}\n" for n in range(10)))
    with running_broker(tmp_path, "offsets.topic.num.partitions=1") as target:
        addresses = ("--from", broker_process.bootstrap, "--to", target.bootstrap)
        for expected in ("10 records", "0 records"):
            done = run(None, "mirror", *addresses, "--topics", f"{topic}|nothing", "--once")
            assert done.code == 0
            assert done.lines[-1].startswith(expected)
            assert done.lines[-1].endswith("lag 0")
        read = run(target, "consume", "--topic", topic, "--from-beginning", "--max-messages", "10")
        assert read.lines == [str(n) for n in range(10)]
        wrong = run(None, "mirror", *addresses, "--topics", "(", "--once")
        assert (wrong.code, "not a regular expression" in wrong.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("topic", "--list"), "gregor: there is no command 'topic'; did you mean topics?"),
        (("configs", "--describe", "--broker", "abc"), "Error: the name of a broker is its id, a number, not 'abc'"),
        (("configs", "--describe", "--broker", "77"), "Error: --broker: there is no broker 77; there are 1"),
        (("configs", "--alter", "--broker", "1", "--delete-config", "nope"), "Error: Invalid config(s): nope"),
        (("faults", "list", "--broker", "77"), "Error: --broker: there is no broker 77; there are 1"),
        (
            ("consume", "--include", "["),
            "Error: --include is not a regular expression: unterminated character set at position 0",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_invalid_arguments_are_reported_in_one_line(
    broker_process: BrokerProcess, words: tuple[str, ...], says: str
) -> None:
    done = run(broker_process, *words)
    assert (done.code, done.out, done.err.strip()) == (2 if "command" in says else 1, "", says)


def test_offsets_of_a_partition_that_a_topic_lacks_are_not_reset(broker_process: BrokerProcess) -> None:
    topic = f"t-{uuid4().hex}"
    assert run(broker_process, "topics", "--create", "--topic", topic).code == 0
    words = ("--reset-offsets", "--group", "g", "--topic", f"{topic}:7", "--to-earliest", "--dry-run")
    done = run(broker_process, "groups", *words)
    assert (done.code, done.err.strip()) == (1, f"Error: {topic} has no partition 7: it has 1, from 0 on")
