"""Import every module that Gregor's sources name; fail with the first one that its package lacks. Run in the image.

Statements within functions count too, as most commands import late. A package that is not there at all belongs to an
extra of the distribution, such as PySpark, and is no error.
"""

import ast
import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec, resolve_name
from pathlib import Path


def named_modules(path: Path, package: str) -> Iterator[str]:
    """Yield the absolute name of each module that the import statements of one file name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield resolve_name("." * node.level + (node.module or ""), package)


def main() -> None:
    """Fail with the name of the first module that is missing from a package that is there."""
    spec = find_spec("gregor")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    named = set[str]()
    for path in root.rglob("*.py"):
        named.update(named_modules(path, ".".join(("gregor", *path.relative_to(root).parts[:-1]))))
    for name in sorted(named):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            lacked = error.name or name
            if find_spec(lacked.partition(".")[0]) is not None:
                # A module that was imported in part cannot be tried again by the next names.
                sys.exit(lacked)


if __name__ == "__main__":
    main()
