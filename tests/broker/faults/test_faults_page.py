"""The examples of docs/faults.md: its commands run in order and print its output, and its rules are valid."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gregor.broker.faults.rule_file import read_rule_file
from gregor.broker.faults.rule_syntax import parse_rule
from gregor.command_line import main
from tests.broker_process import BrokerProcess, running_broker
from tests.waiting import PATIENCE_S

PAGE = Path(__file__).resolve().parents[3] / "docs" / "faults.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
RULE_IN_CODE = re.compile(r"`((?:api|disk)=[^`]*)`")


@pytest.fixture(scope="module")
def faulty_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Provide a broker that was started with the page's command."""
    with running_broker(tmp_path_factory.mktemp("faulty"), "gregor.fault.injection.enable=true") as broker:
        yield broker


def gregor(broker: BrokerProcess, command: str) -> tuple[int, str, str]:
    """Run a command line of the page; return its status, standard output and standard error."""
    program = f'"{sys.executable}" -W error -m gregor.command_line "$@" --bootstrap-server {broker.bootstrap}'
    script = f"gregor() {{ {program}; }}\n{command}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=PATIENCE_S)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_every_command_prints_what_the_page_says(faulty_process: BrokerProcess) -> None:
    sessions = CONSOLE.findall(PAGE.read_text())
    assert len(sessions) == 2
    for session in sessions:
        for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            assert gregor(faulty_process, command)[:2] == (0, expected), command


def test_the_rules_of_the_documentation_are_valid(tmp_path: Path) -> None:
    page = PAGE.read_text()
    for text in RULE_IN_CODE.findall(page):
        # Lists of examples are not whole rules.
        if any(word in text for word in ("delay=", "error=", "disconnect")):
            parse_rule(text)
    (document,) = YAML.findall(page)
    path = tmp_path / "faults.yaml"
    path.write_text(document)
    assert set(read_rule_file(str(path))) == {"slow", "lost-acknowledgements"}


class Tool:
    """A runner of `gregor` in this process, against one broker."""

    def __init__(self, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    def __call__(self, *words: str) -> tuple[int, str, str]:
        """Run a command; return its status, standard output and standard error."""
        status = main([*words, "--bootstrap-server", self._broker.bootstrap])
        return status, *self._capsys.readouterr()


@pytest.fixture
def faults(faulty_process: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Provide a function that runs `gregor faults` and returns its output; remove all rules at the end."""
    tool = Tool(faulty_process, capsys)

    def run(*words: str) -> str:
        status, out, err = tool("faults", *words)
        assert (status, err) == (0, "")
        return out

    yield run
    tool("faults", "clear")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["add", "x", "api=Produce", "dely=1ms"], "Error: unknown word 'dely'; did you mean delay?"),
        (["add", "x y", "stall"], "Error: a rule's name is"),
        (["clear", "nobody"], "Error: no such rule: nobody"),
        (["clock", "soon"], "Error: expected a time"),
    ],
)
def test_errors_of_the_command_are_one_line(
    faulty_process: BrokerProcess, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    status, out, err = Tool(faulty_process, capsys)("faults", *words)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert says in err


def test_one_rule_of_one_broker_is_cleared_and_the_others_stay(faults: Callable[..., str]) -> None:
    faults("add", "--broker", "1", "a", 'api=Fetch client="my app" stall')
    faults("add", "b", "api=Fetch", "client=your app", "stall")
    assert faults("clear", "a") == "cleared a\n"
    listed = faults("list")
    assert "all brokers     api=Fetch 'client=your app' stall" in listed
    assert "my app" not in listed
    assert json.loads(faults("list", "--json")) == [
        {"broker": "1", "name": "b", "from": "all brokers", "rule": "api=Fetch 'client=your app' stall"}
    ]
    assert faults("clear") == "cleared b\n"
    assert json.loads(faults("list", "--json")) == []
    assert faults("clear") == "cleared nothing: no rule was set\n"


def test_rules_that_a_broker_was_started_with_are_switched_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = "gregor.fault.rule.dead=api=Produce disconnect"
    with running_broker(tmp_path, "gregor.fault.injection.enable=true", rule) as broker:
        tool = Tool(broker, capsys)
        assert "start           api=Produce disconnect" in tool("faults", "list")[1]
        assert tool("faults", "clear")[1] == "cleared dead\n"
        assert "dead            broker          off" in tool("faults", "list")[1]
        assert gregor(broker, "echo x | gregor produce --topic t")[0] == 0
