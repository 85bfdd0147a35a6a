"""Start an installed broker, write a record and read it back, as a new user does. Prints the time that this took."""

from __future__ import annotations

import json
import subprocess
import sys
import time

GREGOR = [sys.executable, "-m", "gregor.command_line"]


def main() -> None:
    """Run the round trip. Raises AssertionError or subprocess.CalledProcessError if it fails."""
    began = time.monotonic()
    serve = [*GREGOR, "serve", "--ephemeral", "--port", "0", "--ready-json", "--stop-at-eof"]
    with subprocess.Popen(serve, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        ready = json.loads(broker.stdout.readline())
        server = ["--bootstrap-server", ready["bootstrap_servers"], "--topic", "hello"]
        subprocess.run([*GREGOR, "produce", *server], input=b"first\n", check=True)
        consume = [*GREGOR, "consume", *server, "--from-beginning", "--max-messages", "1"]
        assert subprocess.run(consume, capture_output=True, check=True).stdout == b"first\n"
        took_s = time.monotonic() - began
        broker.stdin.close()
    kernel = subprocess.run(
        [sys.executable, "-c", "from gregor.protocol.records.kernel_cy import implementation; print(implementation())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    print(f"the first record after {took_s:.1f} s, Python {sys.version.split()[0]}, record kernel: {kernel}")


if __name__ == "__main__":
    main()
