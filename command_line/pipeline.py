"""`gregor pipeline JOB`: copy topics to tables and back, with Spark. Nothing of Spark is imported before a job runs."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from . import INTERRUPTED, CommandParser
from .asking import TERMINATED, UsageError, run_tool, say
from .progress import ProgressBar
from .quiet_jvm import JavaLog, without_gateway_errors
from .text_table import format_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..pipeline.jobs.desk import Metrics, Summary
    from ..pipeline.metrics.exposition import Exposition

SUMMED = ("records", "bytes", "batches_sent", "segments", "dead_letters", "decoded", "left")
"""The columns of a summary whose sums are among its totals, by their names for programs."""
JOBS_ROOM = "..pipeline.jobs"
HOW_TO_INSTALL = "gregor pipeline needs Spark: `make pipeline` here, or `pip install 'gregor-broker[spark,jre]'`"

EPILOG = """\
examples:
  gregor pipeline generate --bootstrap-server localhost:9092 --topic demo --records 100000
  gregor pipeline archive  --bootstrap-server localhost:9092 --topics demo --archive ./lake
  gregor pipeline stats    --bootstrap-server localhost:9092 --topics demo --html stats.html

If a job was interrupted, run it again: it continues at the end of its output.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the parsers of `pipeline` and of its jobs."""
    parser = subparsers.add_parser(
        "pipeline",
        help="copy topics to tables and back, with Spark",
        epilog=EPILOG,
    )
    jobs = parser.add_subparsers(dest="job", metavar="JOB", required=True, parser_class=JobParser)
    table: dict[str, str] = importlib.import_module(f"{JOBS_ROOM}.table", __package__).JOBS
    for name, module_name in table.items():
        module = importlib.import_module(f"{JOBS_ROOM}.{module_name}", __package__)
        job = jobs.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
        )
        place = job.add_mutually_exclusive_group()
        place.add_argument(
            "--master",
            help="Spark's master, as for spark-submit (default: set by spark-submit, SPARK_REMOTE, MASTER or "
            "spark-defaults.conf, else local[*])",
        )
        place.add_argument(
            "--remote", metavar="sc://HOST:PORT", help="a server of Spark Connect instead (gregor-broker[connect])"
        )
        job.add_argument(
            "--conf",
            action="append",
            default=[],
            type=_setting,
            metavar="NAME=VALUE",
            help="a configuration of Spark, as for spark-submit (repeatable)",
        )
        job.add_argument(
            "--package",
            metavar="FILE",
            help="send this archive, which `gregor pipeline package` has written, to the executors",
        )
        job.add_argument("--json", action="store_true", help="print the result as one JSON object on standard output")
        job.add_argument(
            "--verbose",
            "--spark-log",
            dest="spark_log",
            action="store_true",
            help="print Spark's log on standard error",
        )
        job.add_argument(
            "--metrics-listener",
            metavar="http://HOST:PORT",
            help="serve metrics of this run for Prometheus at /metrics while it runs",
        )
        module.add_arguments(job)
        job.set_defaults(run=_run, work=module.run)


def _setting(text: str) -> tuple[str, str]:
    """Parse a configuration of Spark. Raises ArgumentTypeError."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise argparse.ArgumentTypeError(f"{text!r} is not spark.NAME=VALUE")
    return name, value


class JobParser(CommandParser):
    """A parser that reports a usage error in one line, as the options of a job fill a screen."""

    def error(self, message: str) -> NoReturn:
        """Print the error on standard error, and exit with code 2."""
        self.exit(2, f"Error: {message} (see {self.prog} --help)\n")


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("pyspark") is None:
        print(f"Error: {HOW_TO_INSTALL}", file=sys.stderr)  # noqa: T201
        return 1
    desk = TerminalDesk(
        options.master,
        options.remote,
        dict(options.conf),
        options.package,
        is_json=options.json,
        shows_spark=options.spark_log,
        job=options.job,
        listener=options.metrics_listener,
    )
    summaries: list[Summary] = []
    quiet = contextlib.nullcontext() if options.spark_log else without_gateway_errors()
    with _sigterm_as_interruption() as is_terminated, quiet:
        status = run_tool(lambda: summaries.append(_work(options, desk)))
    if status == INTERRUPTED and is_terminated():
        status = TERMINATED
    for summary in summaries:
        if options.json:
            say(json.dumps(summary_fields(options.job, summary)))
        else:
            for line in (*format_table(summary.columns, summary.rows), *summary.notes):
                say(line)
            if any(summary.totals.values()):
                say(", ".join(f"{amount:,} {name.replace('_', ' ')}" for name, amount in summary.totals.items()))
        if not summary.is_clean:
            status = 1
    return status


@contextlib.contextmanager
def _sigterm_as_interruption() -> Iterator[Callable[[], bool]]:
    """Let SIGTERM end a job in order, as Ctrl-C does: Spark cancels its tasks, and `--follow` prints its summary.

    Yields a function that returns whether SIGTERM has come.
    """
    received: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        # Spark has put its own handler there, which cancels what runs.
        handler = signal.getsignal(signal.SIGINT)
        (handler if callable(handler) else signal.default_int_handler)(number, frame)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGTERM, before)


def summary_fields(job: str, summary: Summary) -> dict[str, object]:
    """Return a summary for programs: rows by names such as `dead_letters` and `bytes_per_batch`."""
    names = [name.lower().replace("-%", "_percent").replace("/", "_per_").replace("-", "_") for name in summary.columns]
    rows: list[dict[str, Any]] = [dict(zip(names, row, strict=True)) for row in summary.rows]
    totals: dict[str, int] = {}
    for name in SUMMED:
        numbers = [row[name] for row in rows if isinstance(row.get(name), int)]
        if name in names and len(numbers) == len(rows):
            totals[name] = sum(numbers)
    return {
        "job": job,
        "is_clean": summary.is_clean,
        "totals": {**totals, **summary.totals},
        "rows": rows,
        "notes": list(summary.notes),
    }


def _work(options: argparse.Namespace, desk: TerminalDesk) -> Summary:
    spark_failures = importlib.import_module("..pipeline.spark_failures", __package__)
    try:
        # A listener that cannot listen is told before the work.
        _ = desk.metrics
        importlib.import_module("..pipeline.hadoop_configuration", __package__).use_settings(dict(options.conf))
        for line in importlib.import_module("..pipeline.filesystems.locations", __package__).settings_notes(
            vars(options).values()
        ):
            desk.say(line)
        summary: Summary = options.work(options, desk)
    except Exception as error:
        complaint = spark_failures.complaint_of(error)
        if complaint is None:
            raise
        log = None if complaint.is_all else desk.java_log.keep()
        if options.json:
            say(json.dumps({"job": options.job, "error": complaint.line}))
        raise UsageError(complaint.line if log is None else f"{complaint.line} (Spark's log: {log})") from error
    finally:
        desk.java_log.remove()
        desk.close()
    return summary


class TerminalDesk:
    """The desk of a job at a terminal (`pipeline.jobs.desk.Desk`)."""

    def __init__(
        self,
        master: str | None,
        remote: str | None = None,
        config: Mapping[str, str] | None = None,
        package: str | None = None,
        *,
        is_json: bool = False,
        shows_spark: bool = False,
        job: str = "",
        listener: str | None = None,
    ) -> None:
        self._master = master
        self._remote = remote
        self._config = dict(config or {})
        self._package = package
        self._job = job
        self._listener = listener
        self._exposition: Exposition | None = None
        self._metrics: Metrics | None = None
        self._is_json = is_json
        self._shows_spark = shows_spark
        self._session: SparkSession | None = None
        self.java_log = JavaLog()
        """The log of Spark's output, unless that output is shown."""

    def session(self, config: Mapping[str, str] | None = None) -> SparkSession:
        """Return the Spark session; a line announces its start, which takes some seconds."""
        if self._session is None:
            sessions = importlib.import_module("..pipeline.session", __package__)
            settings = {**(config or {}), **self._config}
            if self._package:
                packages = importlib.import_module("..pipeline.executor_package", __package__)
                settings = packages.with_package(settings, self._package)
            where = sessions.master_of(self._master, self._config, self._remote)
            self.say(f"starting Spark on {where} ...")
            with contextlib.nullcontext() if self._shows_spark else self.java_log.taken():
                self._session = sessions.spark_session(
                    "gregor pipeline", master=self._master, config=settings, remote=self._remote
                )
        return self._session

    @property
    def metrics(self) -> Metrics:
        """The metrics of the job; they are served from the first use on. Raises OptionError, PipelineError."""
        if self._metrics is None:
            if self._listener is None:
                self._metrics = importlib.import_module("..pipeline.jobs.desk", __package__).NoMetrics()
            else:
                exposition = importlib.import_module("..pipeline.metrics.exposition", __package__).Exposition
                job_metrics = importlib.import_module("..pipeline.metrics.job_metrics", __package__).JobMetrics
                self._exposition = exposition(self._listener)
                self._metrics = job_metrics(self._job, self._exposition)
        return self._metrics

    def close(self) -> None:
        """Stop the listener of metrics."""
        if self._exposition is not None:
            self._exposition.close()

    def progress(self, total: int, unit: str) -> ProgressBar:
        """Return a progress bar on standard error, if that is a terminal."""
        return ProgressBar(total, unit)

    def say(self, line: str) -> None:
        """Print a line of output; on standard error if standard output is JSON."""
        if self._is_json:
            print(line, file=sys.stderr)  # noqa: T201
        else:
            say(line)
