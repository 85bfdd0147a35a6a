"""Our client beside aiokafka, kafka-python and confluent-kafka: records/s and CPU seconds, producing and consuming.

    python -m bench.clients [--rounds 3] [--bootstrap HOST:PORT]

Each client runs in a process of its own, turn by turn; the table has the median of the rounds, with the lowest and the
highest. The CPU time of importing the client is in a column of its own. The other clients are in an environment under
~/.cache, created by the first run. Without --bootstrap a Gregor broker is started.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import venv
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path
from uuid import uuid4

from bench.one_broker import OneBroker, one_broker

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENT = Path.home() / ".cache" / "gregor-bench-clients"
PACKAGES = ("aiokafka", "kafka-python", "confluent-kafka")
CLIENTS = ("gregor", "aiokafka", "kafka-python", "confluent")
SIZES = {100: 200_000, 1_000: 100_000}


def foreign_python() -> str:
    """Return the interpreter of the other clients' environment; create the environment if it is missing."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        print("installing the other clients (once) ...", file=sys.stderr)
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return str(python)


def run_worker(client: str, direction: str, bootstrap: str, topic: str, count: int, size: int) -> dict[str, float]:
    """Run one client once and return its figures."""
    python = sys.executable if client == "gregor" else foreign_python()
    command = [python, str(ROOT / "bench" / "client_worker.py")]
    command += [client, direction, bootstrap, topic, str(count), str(size)]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{client} {direction} failed:\n{done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def spread(values: list[float], form: str) -> str:
    """Format the median, with the range in brackets."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:{form}} ({low:{form}}-{high:{form}})"


def main() -> int:
    """Run all clients and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap", help="a broker that runs already")
    arguments = parser.parse_args()
    broker = nullcontext(OneBroker(arguments.bootstrap, 0)) if arguments.bootstrap else one_broker()
    results: defaultdict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    with broker as running:
        for _ in range(arguments.rounds):
            for size, count in SIZES.items():
                for client in CLIENTS:
                    topic = f"bench-{client}-{uuid4().hex[:8]}"
                    for direction in ("produce", "consume"):
                        figures = run_worker(client, direction, running.bootstrap, topic, count, size)
                        results[direction, size, client].append(figures)
    print("| direction | record | client | records/s | CPU us per record | CPU ms of the imports |\n|" + " --- |" * 6)
    for (direction, size, client), rounds in sorted(
        results.items(), key=lambda item: (item[0][0] != "produce", item[0])
    ):
        rates = [figures["records"] / figures["seconds"] for figures in rounds]
        cpu = [figures["cpu_seconds"] / figures["records"] * 1e6 for figures in rounds]
        imports = [figures["import_seconds"] * 1e3 for figures in rounds]
        texts = (spread(rates, ",.0f"), spread(cpu, ".2f"), spread(imports, ".0f"))
        print(f"| {direction} | {size} B | {client} | " + " | ".join(texts) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
