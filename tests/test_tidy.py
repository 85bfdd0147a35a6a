"""House rules that a test can check: short files, documented rooms, no junk drawers, no dead modules."""

import ast
import gc
import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from gregor.command_line import COMMANDS
from gregor.pipeline.jobs.table import JOBS
from gregor.protocol.apis import AnyApiKey, ApiKey, ControllerApiKey, GregorApiKey
from tests.import_graph import circles, import_graph, module_name, parsed, reached

ROOT = Path(__file__).resolve().parent.parent
ROOMS = (
    "protocol",
    "security",
    "storage",
    "broker",
    "gateway",
    "client",
    "pipeline",
    "command_line",
    "testing",
    "bench",
    "zookeeper",
)
LONGEST_FILE_LINES = 518
LONGEST_FUNCTION_LINES = 76
"""The longest file and function that there are: these figures only ever go down."""
NO_VERBS = re.compile(
    r"an?|the|this|that|these|those|each|every|all|any|some|no|none|both|one|two|three|its|his|her|their|it|they"
    r"|who|whom|whose|what|which|when|where|why|how|whether|if|as|in|on|at|by|to|from|of|for|with|without|until"
    r"|only|even|so|such|more|most|less|least|another|other|same|and|or|but|not|nor|there|here|nothing|nobody"
)
"""Words with which the docstring of a function does not begin: it begins with a verb ("Return the offset")."""
QUESTIONS = re.compile(r"(?:how|what|where|when|why|who|which)\b", re.IGNORECASE)
"""Words with which the docstring of a constant or attribute does not begin: it is a noun phrase ("Time in ms ...")."""
JUNK_DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "stuff", "tools"}
IN_DOCUMENTS = re.compile(r"from (gregor\.pipeline[\w.]*) import")


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


@pytest.fixture(scope="module", autouse=True)
def _without_collections() -> Iterator[None]:
    """Switch the garbage collector off: it would walk a million nodes of syntax trees again and again."""
    gc.disable()
    yield
    parsed.cache_clear()
    gc.enable()


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Iterate over all functions of a file."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_each_file_has_one_subject_and_says_which() -> None:
    files = python_files()
    assert [relative(path) for path in files if path.stem in JUNK_DRAWERS] == [], "name the file after its subject"
    without = [relative(path) for path in files if not ast.get_docstring(parsed(path))]
    assert without == [], "a file opens with a docstring that says what its subject is"
    long = [relative(path) for path in files if path.read_text().count("\n") > LONGEST_FILE_LINES]
    assert long == [], "a file this long has two subjects"


def test_no_function_is_longer_than_the_limit() -> None:
    long = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in python_files()
        for node in functions_of(path)
        if (node.end_lineno or node.lineno) - node.lineno > LONGEST_FUNCTION_LINES
    ]
    assert long == []


def test_public_functions_and_classes_are_documented() -> None:
    bare = [
        f"{relative(path)}:{node.lineno} {node.name}"
        for path in python_files()
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if not (node.name.startswith("_") or "messages" in path.parts or ast.get_docstring(node))
    ]
    assert bare == []


def test_the_docstring_of_a_function_begins_with_a_verb() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno}: {docstring.splitlines()[0]}"
        for path in python_files()
        for node in functions_of(path)
        if not is_value(node)
        if (docstring := ast.get_docstring(node)) and not is_verb(docstring.split()[0])
    ]
    assert wrong == []


def test_the_docstring_of_a_constant_is_no_question() -> None:
    wrong = [
        f"{relative(path)}:{line}: {text}"
        for path in [*python_files(), *sorted((ROOT / "tests").rglob("*.py"))]
        for line, text in docstrings_of_values(parsed(path))
        if QUESTIONS.match(text)
    ]
    assert wrong == []


def docstrings_of_values(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Iterate over the docstrings below assignments: of constants, fields and attributes, with their lines."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement, following in pairwise(body if isinstance(body, list) else ()):
            match statement, following:
                case ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str() as text)):
                    yield following.lineno, text


def test_docstrings_of_values_are_found() -> None:
    source = 'A = 1\n"""One."""\nclass B:\n    """A class that."""\n    c: int\n    """What."""\n'
    assert list(docstrings_of_values(ast.parse(source))) == [(2, "One."), (6, "What.")]
    assert QUESTIONS.match("What.")
    assert not QUESTIONS.match("Whether it is open.")


def is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether users see the function as a value: a property, or a fixture of the pytest plugin."""
    decorators = map(ast.unparse, node.decorator_list)
    return any("property" in decorator or "fixture" in decorator for decorator in decorators)


def is_verb(word: str) -> bool:
    """Return whether a word can be an imperative: "Return", but neither "Returns" nor "The"."""
    word = word.strip(".,:;").lower()
    return word.isalpha() and not NO_VERBS.fullmatch(word) and (not word.endswith("s") or word.endswith("ss"))


def test_verbs_are_recognised() -> None:
    assert all(map(is_verb, ["Return", "Pass", "Wait,"]))
    assert not any(map(is_verb, ["Returns", "The", "`size`", "What", "KIP-98"]))


def loaded_by_name() -> set[str]:
    """Return the modules that no import statement names: programs, entry points, commands, jobs, schemas of APIs, and
    what the programs of the documents import.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entry_points = [project["scripts"], *project["entry-points"].values()]
    programs = {path for path in python_files() if 'if __name__ == "__main__":' in path.read_text()}
    programs |= {path for path in python_files() if path.name == "__main__.py"}
    keys: list[AnyApiKey] = [*ApiKey, *ControllerApiKey, *GregorApiKey]
    return {
        *(target.partition(":")[0] for group in entry_points for target in group.values()),
        *(module_name(path, ROOT) for path in programs),
        *(f"gregor.command_line.{module}" for module in COMMANDS.values()),
        *(f"gregor.pipeline.jobs.{module}" for module in ("table", *JOBS.values())),
        *(f"gregor.protocol.messages.{key.name.lower()}" for key in keys),
        *(name for path in (ROOT / "docs").glob("*.md") for name in IN_DOCUMENTS.findall(path.read_text())),
    }


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Return the modules that each module of the product imports."""
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


def test_every_package_is_listed_in_pyproject() -> None:
    """A room missing from pyproject's list would work in a checkout and break for everyone else."""
    listed = (ROOT / "pyproject.toml").read_text()
    for room in ("protocol", "security", "storage", "broker", "client", "pipeline", "command_line", "zookeeper"):
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


def test_each_test_that_the_requirements_name_exists() -> None:
    page = (ROOT / "docs/requirements.md").read_text()
    cited = re.findall(r"`(tests/[\w/]+\.py)`: ((?:`test_\w+`(?:, )?)+)", page)
    missing = [
        f"{path}: {name}"
        for path, names in cited
        for name in re.findall(r"test_\w+", names)
        if f"def {name}(" not in (ROOT / path).read_text()
    ]
    assert len(cited) > 40
    assert not missing
