"""Help: examples of every command, which the program itself accepts, and completion for three shells."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gregor.command_line import COMMANDS, build_parser
from gregor.command_line.colours import RED, coloured
from tests.waiting import PATIENCE_S

GREGOR = [sys.executable, "-m", "gregor.command_line"]


def help_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit):
        build_parser([command]).parse_args([command, "--help"])
    return capsys.readouterr().out


def examples_in(text: str, command: str) -> list[str]:
    """Return the lines of a help text that show a call; two blanks separate a call from its description."""
    lines = [line.strip() for line in text.splitlines() if line.startswith(f"  gregor {command}")]
    return [line.partition("   ")[0] for line in lines]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_examples_that_it_takes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = examples_in(help_of(command, capsys), command)
    assert examples, "the help has no example"
    for example in examples:
        words = shlex.split(example.partition(" > ")[0].partition(" | ")[0].replace("&", ""))
        build_parser([command]).parse_args(words[1:])


def test_the_environment_names_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREGOR_BOOTSTRAP_SERVER", "kafka:1234")
    for command in (["topics", "--list"], ["groups", "--list"], ["healthcheck"], ["consume", "--topic", "t"]):
        assert build_parser([command[0]]).parse_args(command).bootstrap_server == "kafka:1234"
        given = [*command, "--bootstrap-server", "other:1"]
        assert build_parser([command[0]]).parse_args(given).bootstrap_server == "other:1"
    monkeypatch.delenv("GREGOR_BOOTSTRAP_SERVER")
    assert build_parser(["topics"]).parse_args(["topics", "--list"]).bootstrap_server == "localhost:9092"


class Terminal:
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_colours_are_written_only_to_terminals_that_support_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    assert coloured("a", RED, terminal) == "\x1b[31ma\x1b[0m"  # type: ignore[arg-type]
    assert coloured("a", RED, sys.__stdin__ or sys.stdin) in ("a", "\x1b[31ma\x1b[0m")
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("a", RED, terminal) == "a"  # type: ignore[arg-type]
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert coloured("a", RED, terminal) == "a"  # type: ignore[arg-type]


# --- completion

SHELL_PROBES = {
    # The functions that bash calls at the Tab key, for `gregor to` and `gregor topics --desc`.
    "bash": """
source {script}
complete_line() {{
  COMP_LINE="$*"; COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
  local name; name=$(complete -p gregor | sed 's/.*-F \\([^ ]*\\).*/\\1/'); "$name" gregor "${{@: -1}}" "${{@: -2:1}}"
  printf '%s\\n' "${{COMPREPLY[@]}}"
}}
complete_line gregor to
complete_line gregor topics --desc
""",
    "fish": """
source {script}
complete -C 'gregor to'
complete -C 'gregor topics --desc'
""",
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the script for each shell."""
    directory = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        done = subprocess.run([*GREGOR, "completion", shell], capture_output=True, check=True, timeout=PATIENCE_S)
        (directory / shell).write_bytes(done.stdout)
    return directory


@pytest.mark.parametrize("shell", SHELL_PROBES)
def test_commands_and_options_are_completed(shell: str, scripts: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"needs {shell}")
    probe = SHELL_PROBES[shell].format(script=scripts / shell)
    done = subprocess.run([program, "-c", probe], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "topics" in done.stdout, done.stderr
    assert "--describe" in done.stdout, done.stderr


def test_zsh_takes_its_script(scripts: Path) -> None:
    program = shutil.which("zsh")
    if program is None:
        pytest.skip("needs zsh")
    subprocess.run([program, "-n", str(scripts / "zsh")], check=True, timeout=PATIENCE_S)
    assert (scripts / "zsh").read_text().startswith("#compdef gregor")
