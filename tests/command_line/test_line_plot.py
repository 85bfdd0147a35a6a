"""Line plots as XML: the place of each point, the labels of the axes, and names that are no markup."""

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gregor.command_line.line_plot import HEIGHT, WIDTH, Line, Panel, write_line_plot

SVG = "{http://www.w3.org/2000/svg}"


def drawn(path: Path, panels: Sequence[Panel], title: str = "title") -> ElementTree.Element:
    write_line_plot(path, title, panels)
    return ElementTree.parse(path).getroot()


def points_in(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    """Return the points of each line as fractions of the panel, to the right and up."""
    return [
        [
            (round(float(x) / WIDTH, 2), round(1 - float(y) / HEIGHT, 2))
            for x, y in (point.split(",") for point in line.attrib["points"].split())
        ]
        for line in root.iter(f"{SVG}polyline")
    ]


def texts_in(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def test_axes_begin_at_zero(tmp_path: Path) -> None:
    root = drawn(tmp_path / "new" / "plot.svg", [Panel("seconds", "MB/s", {"one": [(1, 500), (2, 2000), (4, 1000)]})])
    assert points_in(root) == [[(0.25, 0.25), (0.5, 1), (1, 0.5)]]
    assert {"0", "1", "2", "3", "4", "500", "1k", "1.5k", "2k", "seconds", "MB/s", "title"} == set(texts_in(root))


def test_logarithmic_axes_begin_at_the_smallest_values(tmp_path: Path) -> None:
    lines = {"one": [(1, 10), (100, 1000)], "two": [(10, 100), (10_000, 100_000)]}
    root = drawn(tmp_path / "plot.svg", [Panel("x", "y", lines, is_logarithmic=True)])
    assert points_in(root) == [[(0, 0), (0.5, 0.5)], [(0.25, 0.25), (1, 1)]]
    assert {"1", "10", "100", "1k", "10k", "100k", "one", "two"} <= set(texts_in(root))


def test_panels_are_one_below_the_other(tmp_path: Path) -> None:
    one = drawn(tmp_path / "one.svg", [Panel("x", "y", {"a": [(1, 1)]})])
    two = drawn(tmp_path / "two.svg", [Panel("x", "y", {"a": [(1, 1)]}), Panel("v", "w", {"b": [(0, 2), (3, 4)]})])
    assert int(two.attrib["height"]) == 2 * int(one.attrib["height"])
    assert points_in(two) == [[(1, 1)], [(0, 0.5), (1, 1)]]
    assert len({group.attrib["transform"] for group in two.iter(f"{SVG}g")}) == 2


@pytest.mark.parametrize("line", [[], [(0, 0)], [(5, 0), (9, 0)], [(-1, -2), (1, 2)]])
def test_lines_without_extent_and_below_zero_are_within_the_panel(tmp_path: Path, line: Line) -> None:
    (points,) = points_in(drawn(tmp_path / "plot.svg", [Panel("x", "y", {"a": line})]))
    assert len(points) == len(line)
    assert all(0 <= place <= 1 for point in points for place in point)


def test_special_characters_in_names_are_escaped(tmp_path: Path) -> None:
    names = ["<b>", "a & b", 'say "x"', "µs"]
    panel = Panel(names[0], names[1], {names[2]: [(1, 1)], "other": [(2, 2)]})
    assert set(names) <= set(texts_in(drawn(tmp_path / "plot.svg", [panel], title=names[3])))
