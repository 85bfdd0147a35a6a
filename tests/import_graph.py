"""The modules that each module of this project imports: at the top of the file, in a function or for types alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib.util import resolve_name
from pathlib import Path

PACKAGE = "gregor"


def module_name(path: Path, root: Path) -> str:
    """Return the dotted name under which a file of the checkout is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts) if parts[:1] == ("tests",) else ".".join((PACKAGE, *parts))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text())


def import_graph(paths: Collection[Path], root: Path) -> dict[str, set[str]]:
    """Return for each module the modules among ``paths`` that its file names in import statements."""
    names = {module_name(path, root): path for path in paths}
    return {name: {found for found in _imported(path, name, names) if found != name} for name, path in names.items()}


def _imported(path: Path, name: str, known: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (known_part for alias in node.names if (known_part := _known_part(alias.name, known)))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = resolve_name("." * node.level + base, package)
            yield from (found for alias in node.names if (found := _known_part(f"{base}.{alias.name}", known)))
        elif isinstance(node, ast.Call) and _loads_a_constant(node):
            yield from filter(None, [_known_part(resolve_name(ast.literal_eval(node.args[0]), package), known)])
    declarations = path.with_suffix(".pxd")
    if declarations.exists():
        yield from (
            resolve_name(module, package)
            for module in re.findall(r"^from (\.[\w.]+) cimport", declarations.read_text(), re.MULTILINE)
        )


def _loads_a_constant(call: ast.Call) -> bool:
    """Return whether a call is ``import_module("some.module", ...)``."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return called == "import_module" and bool(call.args) and isinstance(call.args[0], ast.Constant)


def _known_part(name: str, known: Mapping[str, Path]) -> str | None:
    """Return the module that ``name`` is, or that ``name`` is an attribute of; benchmarks import ``bench.module``."""
    if name.startswith("bench."):
        name = f"{PACKAGE}.{name}"
    if name in known:
        return name
    parent = name.rpartition(".")[0]
    return parent if parent in known else None


def circles(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or not (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            members = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(members) > 1:
                found.append(sorted(members))

    for name in graph:
        if name not in index:
            visit(name)
    return sorted(found)


def reached(graph: Mapping[str, Collection[str]], entries: Collection[str]) -> set[str]:
    """Return the modules that the entries import, directly or not, with the entries and the packages of all of them."""
    seen: set[str] = set()
    pending = list(entries)
    while pending:
        name = pending.pop()
        if name in seen or name not in graph:
            continue
        seen.add(name)
        pending += graph[name]
        pending.append(name.rpartition(".")[0])
    return seen
