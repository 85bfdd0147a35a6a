"""House rules that a machine can keep: short files, documented rooms, no junk drawers, no dead modules."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

from gregor.command_line import COMMANDS
from gregor.pipeline.jobs.table import JOBS
from gregor.protocol.apis import AnyApiKey, ApiKey, ControllerApiKey, GregorApiKey
from tests.import_graph import circles, import_graph, module_name, reached

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("protocol", "storage", "broker", "client", "pipeline", "command_line", "bench")
LONGEST_FILE_LINES = 518
LONGEST_FUNCTION_LINES = 78
"""The longest file and function that there are: these figures only ever go down."""
JUNK_DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "stuff", "tools"}


def python_files() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def tracked_files(*patterns: str) -> list[Path]:
    """Return the files that git tracks or would track, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [Path(name) for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_each_file_has_one_subject_and_says_which(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert path.stem not in JUNK_DRAWERS, "name the file after its subject"
    assert ast.get_docstring(tree), "a file opens with a docstring that says what its subject is"
    assert text.count("\n") <= LONGEST_FILE_LINES, "a file this long has two subjects"


@pytest.mark.parametrize("path", python_files(), ids=relative)
def test_functions_fit_a_screen_or_two_and_public_ones_are_documented(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno
            assert lines <= LONGEST_FUNCTION_LINES, f"{node.name} has {lines} lines"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert "messages" in path.parts or ast.get_docstring(node), f"{node.name} has no docstring"


def loaded_by_name() -> set[str]:
    """Return the modules that no import statement names: programs, commands, jobs, and the schemas of APIs."""
    programs = {path for path in python_files() if 'if __name__ == "__main__":' in path.read_text()}
    programs |= {path for path in python_files() if path.name == "__main__.py"}
    keys: list[AnyApiKey] = [*ApiKey, *ControllerApiKey, *GregorApiKey]
    return {
        *(module_name(path, ROOT) for path in programs),
        *(f"gregor.command_line.{module}" for module in COMMANDS.values()),
        *(f"gregor.pipeline.jobs.{module}" for module in ("table", *JOBS.values())),
        *(f"gregor.protocol.messages.{key.name.lower()}" for key in keys),
    }


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """The modules that each module of the product imports."""
    return import_graph([ROOT / "__init__.py", *python_files()], ROOT)


def test_every_module_is_reached_from_a_program(imports: dict[str, set[str]]) -> None:
    dead = sorted(imports.keys() - reached(imports, loaded_by_name()))
    assert not dead, f"no command, job or benchmark imports these modules: {dead}"


def test_no_modules_import_each_other(imports: dict[str, set[str]]) -> None:
    """Imports for types and inside of functions count: modules in a circle cannot be understood one by one."""
    assert circles(imports) == []


def test_circles_and_unreached_modules_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e.f", "a"}, "e.f": {"e"}}
    assert circles(imports) == [["b", "c"], ["e", "e.f"]]
    assert imports.keys() - reached(imports, ["b"]) == {"a", "e", "e.f"}
    assert reached(imports, ["e.f"]) == set(imports)


def test_every_package_is_installed() -> None:
    """A room missing from pyproject's list would work in a checkout and break for everyone else."""
    listed = (ROOT / "pyproject.toml").read_text()
    for room in ("protocol", "storage", "broker", "client", "pipeline", "command_line"):
        for init in (ROOT / room).rglob("__init__.py"):
            package = ".".join(("gregor", *init.parent.relative_to(ROOT).parts))
            assert f'"{package}"' in listed, f"{package} is not in [tool.setuptools] packages"


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"], ids=lambda page: page.stem
)
def test_each_file_that_a_document_names_exists(page: Path) -> None:
    files = [str(path) for path in tracked_files()]
    missing = [
        name
        for name in re.findall(r"`((?:[\w.-]+/)*\w+\.(?:py|pxd|c|h))`", page.read_text())
        if not any(f"/{path}".endswith(f"/{name}") for path in files)
    ]
    assert not missing
