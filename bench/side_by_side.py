"""``make bench ARGS=versus``: Gregor and Apache Kafka 3.9.1 on the same machine, turn by turn, under the driver of
``../shared/bench``, with all figures that it has.

Both brokers start fresh, are warmed, and take turns test by test and round by round. The table has medians with the
lowest and highest round, and says "better" or "worse" only where the ranges do not overlap. CPU seconds and memory are
shown as well, since on two cores the driver and the broker share the machine.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SHARED = Path(__file__).resolve().parents[2] / "shared"
DRIVER_BUILD = Path.home() / ".cache" / "kload"
KAFKA_PORT, GREGOR_PORT = 19640, 19650


def build_driver() -> Path:
    """Return the path of ``kload``; cargo builds it at the first call."""
    driver = DRIVER_BUILD / "release" / "kload"
    if not driver.exists():
        print("building the load driver (once, about a minute) ...", file=sys.stderr)
        environment = {**os.environ, "CARGO_TARGET_DIR": str(DRIVER_BUILD)}
        subprocess.run(["cargo", "build", "--release"], cwd=SHARED / "bench" / "kload", env=environment, check=True)
    return driver


def start_gregor(data: Path) -> subprocess.Popen[bytes]:
    """Start a broker as a user does, with its output in ``data``/server.log; return when it answers."""
    data.mkdir(parents=True)
    command = [sys.executable, "-m", "gregor.command_line", "serve"]
    for override in (f"listeners=PLAINTEXT://127.0.0.1:{GREGOR_PORT}", f"log.dirs={data / 'logs'}"):
        command += ["--override", override]
    with (data / "server.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    (data / "pid").write_text(str(process.pid))
    for _ in range(100):
        if b"accept" in (data / "server.log").read_bytes() or b"started" in (data / "server.log").read_bytes():
            return process
        time.sleep(0.1)
    raise SystemExit((data / "server.log").read_text())


@contextmanager
def both_brokers(only: str | None = None) -> Iterator[list[str]]:
    """Run Kafka 3.9.1 and this checkout's broker, both empty, during the context.

    Yields each as the text that `versus` takes, NAME=HOST:PORT,PIDFILE, Kafka first. `only` is ``gregor`` or ``kafka``.
    """
    brokers = []
    scratch = Path(tempfile.mkdtemp(prefix="gregor-bench-"))
    try:
        if only != "gregor":
            subprocess.run([SHARED / "peer" / "kafka39", "start", str(KAFKA_PORT)], check=True, stdout=sys.stderr)
            home = Path(os.environ.get("PEER_HOME", Path.home() / ".cache" / "peer-kafka39"))
            brokers.append(f"kafka391=127.0.0.1:{KAFKA_PORT},{home / f'data-{KAFKA_PORT}' / 'pid'}")
        if only != "kafka":
            start_gregor(scratch / "gregor")
            brokers.append(f"gregor=127.0.0.1:{GREGOR_PORT},{scratch / 'gregor' / 'pid'}")
        yield brokers
    finally:
        pid_file = scratch / "gregor" / "pid"
        if pid_file.exists():
            subprocess.run(["kill", pid_file.read_text().strip()], check=False)
        if only != "gregor":
            subprocess.run([SHARED / "peer" / "kafka39", "stop", str(KAFKA_PORT)], check=False)
        shutil.rmtree(scratch, ignore_errors=True)


def versus(brokers: Sequence[str], words: Sequence[str], stdout: IO[str] | None = None) -> int:
    """Run the tests that `words` name against the brokers, in turns; return the exit code."""
    environment = {**os.environ, "KLOAD": str(build_driver())}
    command = [str(SHARED / "bench" / "seedbench" / "versus"), *brokers, *words]
    return subprocess.run(command, env=environment, check=False, stdout=stdout).returncode


def main(arguments: list[str]) -> int:
    """Run the tests named on the command line; more options go to ``../shared/bench/seedbench/versus``."""
    parser = argparse.ArgumentParser(prog="python -m bench versus", description=__doc__)
    parser.add_argument("--tests", default="convert,produce,small,e2e,slow", help="see ../shared/bench/README.md")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("gregor", "kafka"), help="measure one broker alone")
    options, passed_on = parser.parse_known_args(arguments)
    if not (SHARED / "bench").is_dir():
        print("skipped: the load driver and Apache Kafka 3.9.1 are in ../shared, which is not here", file=sys.stderr)
        return 0
    with both_brokers(options.only) as brokers:
        return versus(brokers, ["--tests", options.tests, "--rounds", str(options.rounds), *passed_on])
