"""A broker for tests, as a process of its own or in a thread, that leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self
from uuid import uuid4

from .broker_process import BrokerProcess
from .failure import BrokerFailedError

if TYPE_CHECKING:
    from .broker_thread import BrokerThread

SETTINGS_OF_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
    "gregor.fault.injection.enable": "true",
}
"""Settings that save time in tests: no wait for further members of a group, small internal topics. Records with
timestamps of their own are not deleted by retention, and faults can be set."""
MS = timedelta(milliseconds=1)


class Broker:
    """A broker on a free port of loopback, with data that is removed at the end.

    ::

        with Broker(topics=["orders:3"], load=["seed.jsonl"]) as broker:
            producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)

    ``topics`` and ``load`` are as the options of ``gregor serve``; ``settings`` are Kafka's broker configurations. A
    broker ``runs_in`` a process of its own or a thread of this one: the thread starts in fewer milliseconds, but shares
    the interpreter with the test, and takes data from no ``state`` (a file of ``gregor state save``).
    """

    def __init__(
        self,
        *,
        topics: Iterable[str] = (),
        load: Iterable[str | Path] = (),
        settings: Mapping[str, str] | None = None,
        runs_in: Literal["process", "thread"] = "process",
        state: str | Path | None = None,
        port: int = 0,
    ) -> None:
        if runs_in == "thread" and state is not None:
            raise ValueError("a broker in a thread cannot begin with a state: use runs_in='process'")
        self._topics = list(topics)
        self._load = [str(path) for path in load]
        self._settings = {**SETTINGS_OF_TESTS, **(settings or {})}
        self._runs_in = runs_in
        self._state = state
        self._wanted_port = port
        self._running: BrokerProcess | BrokerThread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, as host:port. Raises BrokerFailedError while the broker does not run."""
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """The port of the listener. Raises BrokerFailedError while the broker does not run."""
        if self._running is None:
            raise BrokerFailedError("the broker does not run: use it in a with statement, or call start()")
        return self._running.port

    def start(self) -> Self:
        """Start the broker and return it once clients are served, with all topics and records there.

        Raises BrokerFailedError with the reason.
        """
        if self._running is not None:
            raise BrokerFailedError("the broker runs already")
        listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{self._wanted_port}"}
        settings = {**listeners, **self._settings}
        if self._runs_in == "process":
            words = [f"--topic={topic}" for topic in self._topics] + [f"--load={path}" for path in self._load]
            words += [f"--override={key}={value}" for key, value in settings.items()]
            words += [] if self._state is None else [f"--state={self._state}"]
            self._running = BrokerProcess(words)
        else:
            # The plugin is imported by every run of pytest, so the modules of the broker are imported only here.
            from .broker_thread import BrokerThread

            added = {"gregor.create.topics": ",".join(self._topics), "gregor.load": ",".join(self._load)}
            self._running = BrokerThread({**settings, **{key: text for key, text in added.items() if text}})
        return self

    def stop(self) -> None:
        """Stop the broker and remove its data; nothing happens if it does not run. Raises BrokerFailedError."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    @contextmanager
    def fault(self, rule: str = "", **words: object) -> Iterator[None]:
        """Apply a fault rule for the length of a block.

        The rule is a text as of `gregor faults add` (docs/faults.md), or has its words as arguments, where True stands
        for a word without a value, and `from_` for `from`::

            with broker.fault("api=Produce topic=orders delay=20ms"):
            with broker.fault(api=["Produce", "Fetch"], error="NOT_LEADER_OR_FOLLOWER", first=2):

        Raises FaultRuleError (a ValueError) for a rule that cannot be read, BrokerError or ClientError if the broker
        refuses or does not answer.
        """
        if bool(rule) == bool(words):
            raise ValueError("give a rule as one text, or its words as arguments")
        from .administration import clear_fault, set_fault

        name = f"test-{uuid4().hex[:12]}"
        set_fault(self.bootstrap_servers, name, rule or rule_of(words))
        try:
            yield
        finally:
            if self._running is not None:
                clear_fault(self.bootstrap_servers, name)

    @contextmanager
    def clock(self, ahead: timedelta) -> Iterator[None]:
        """Shift the broker's clock for the length of a block; a negative time is behind the right time.

        The clock decides timestamps, retention and expiry, and no timeout. Raises BrokerError, ClientError.
        """
        from .administration import shift_clock

        shift_clock(self.bootstrap_servers, ahead // MS)
        try:
            yield
        finally:
            if self._running is not None:
                shift_clock(self.bootstrap_servers, 0)

    def reset(self, *, recreate: bool = False) -> None:
        """Delete all topics and groups; `recreate` creates the topics again, empty, with new ids and the same settings.

        Raises UsageError for groups that have members, after everything else is deleted; BrokerError, ClientError.
        """
        from .administration import reset_broker

        reset_broker(self.bootstrap_servers, recreates=recreate)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def rule_of(words: Mapping[str, object]) -> str:
    """Return the text of a fault rule that is given by its words as Python names and values."""
    return json.dumps({word.rstrip("_"): value for word, value in words.items()})
