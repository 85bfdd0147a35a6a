"""A broker for tests, as a process of its own or in a thread, that leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from .broker_process import BrokerProcess
from .failure import BrokerFailedError

if TYPE_CHECKING:
    from .broker_thread import BrokerThread

SETTINGS_OF_TESTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
}
"""Settings that save time in tests: no wait for further members of a group, small internal topics; and records with
timestamps of their own are not deleted by retention."""


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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
