"""The typing marker: type checkers find the annotations of an installed package (PEP 561)."""

import tomllib
from importlib.resources import files
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


def test_the_package_has_its_typing_marker_and_installs_it() -> None:
    assert files("gregor").joinpath("py.typed").is_file()
    setuptools = tomllib.loads(PYPROJECT.read_text())["tool"]["setuptools"]
    assert "py.typed" in setuptools["package-data"]["gregor"]
