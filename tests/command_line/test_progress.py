"""The progress bar on a real terminal, and its absence elsewhere."""

import io
import os
import subprocess
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

import pytest

from gregor.command_line.progress import ProgressBar

COLUMNS = 60
MARK = "\0"
PATIENCE_S = 60


class Terminal:
    """A pseudo terminal: a stream that a program writes to, and the bytes at the other side."""

    def __init__(self, master: int, stream: TextIO) -> None:
        self._master = master
        self._stream = stream

    def text(self) -> str:
        """Return the text written since the last call. A terminal delivers bytes late, so a mark ends them."""
        self._stream.write(MARK)
        self._stream.flush()
        received = b""
        while not received.endswith(MARK.encode()):
            received += os.read(self._master, 1 << 16)
        return received.decode().removesuffix(MARK)


@contextmanager
def on_terminal(output: TextIO | None = None) -> Iterator[Terminal]:
    """Make a terminal standard error, and standard output too unless that is given."""
    master, slave = os.openpty()
    termios.tcsetwinsize(slave, (24, COLUMNS))
    # The terminal is raw, so that it does not change line feeds.
    tty.setraw(slave)
    try:
        with open(slave, "w", encoding="utf-8") as stream, redirect_stderr(stream), redirect_stdout(output or stream):
            yield Terminal(master, stream)
    finally:
        os.close(master)


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", clock)
    return clock


def test_a_bar_has_percentage_counts_rate_and_time_left(clock: Clock) -> None:
    threads = threading.active_count()
    with on_terminal() as terminal:
        with ProgressBar(200_000, "records") as progress:
            assert terminal.text() == ""
            clock.now_s += 1
            progress.advance(60_000)
            drawn = terminal.text()
            assert drawn.startswith("\r 30%|")
            assert drawn.endswith("| 60.0k/200k [00:01<00:02, 60.0k records/s]")
            assert len(drawn.strip("\r")) <= COLUMNS
            assert threading.active_count() == threads
        erased = terminal.text()
        assert set(erased) == {"\r", " "}
        assert erased.endswith("\r")


def test_no_colour_and_no_other_escape_sequence_is_written(clock: Clock) -> None:
    with on_terminal() as terminal, ProgressBar(10, "bytes") as progress:
        clock.now_s += 1
        progress.advance(5)
        progress.say("a line")
        written = terminal.text()
        assert "50%" in written
        assert "\x1b" not in written


def test_the_bar_is_not_redrawn_too_often(clock: Clock) -> None:
    with on_terminal() as terminal, ProgressBar(1000, "records") as progress:
        clock.now_s += 1
        progress.advance(1)
        assert " 0%|" in terminal.text()
        for done in range(2, 100):
            progress.advance(done)
        assert terminal.text() == ""
        clock.now_s += 0.2
        progress.advance(600)
        assert "60%|" in terminal.text()


@pytest.mark.parametrize("total", [0, 5])
def test_more_items_than_the_total_are_counted(clock: Clock, total: int) -> None:
    with on_terminal() as terminal, ProgressBar(total, "records") as progress:
        clock.now_s += 1
        progress.advance(7)
        assert "7.00 records [00:01, 7.00 records/s]" in terminal.text()


def test_a_line_of_output_takes_the_place_of_the_bar(clock: Clock) -> None:
    with on_terminal() as terminal, ProgressBar(10, "records") as progress:
        clock.now_s += 1
        progress.advance(5)
        terminal.text()
        progress.say("a line")
        erased, line = terminal.text().removesuffix("\n").rsplit("\r", 1)
        assert set(erased) == {"\r", " "}
        assert line == "a line"


def test_the_bar_stays_while_output_goes_to_a_file(clock: Clock) -> None:
    output = io.StringIO()
    with on_terminal(output) as terminal, ProgressBar(10, "records") as progress:
        clock.now_s += 1
        progress.advance(5)
        assert "50%" in terminal.text()
        progress.say("a line")
        assert terminal.text() == ""
    assert output.getvalue() == "a line\n"


def test_no_progress_bar_is_drawn_without_a_terminal() -> None:
    program = (
        "import sys\n"
        "from gregor.command_line.progress import ProgressBar\n"
        "with ProgressBar(10, 'records') as progress:\n"
        "    progress.advance(5)\n"
        "    progress.say('a line')\n"
        "assert 'tqdm' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == (b"a line\n", b"")
