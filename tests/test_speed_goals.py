"""Tests of the table of `make bench`: what counts as met, what is read from the load driver, what is shown."""

import json
from xml.etree import ElementTree

import pytest

from bench.goals.measuring import CASES, FIGURES, GROUPS, add_lines
from bench.goals.report import as_json, lines, picture
from bench.goals.rows import GOALS, GREGOR, KAFKA, Goal, Rounds, results

FASTER = Goal("convert", "work", "MB/s", 1.5)
CHEAPER = Goal("convert", "work", "CPU s/GB", 0.5)
ABSOLUTE = Goal("startup", "start", "exec to first answer, s", 0.15, is_ratio=False)


@pytest.mark.parametrize(
    ("goal", "gregor", "kafka", "verdict"),
    [
        (FASTER, [150.0], [100.0], "met"),
        (FASTER, [149.0], [100.0], "missed"),
        (CHEAPER, [50.0], [100.0], "met"),
        (CHEAPER, [51.0], [100.0], "missed"),
        (FASTER, [1.0, 160.0, 160.0], [100.0, 100.0, 900.0], "met"),
        (FASTER, [], [100.0], "not measured"),
        (FASTER, [150.0], [], "not measured"),
        (FASTER, [150.0], [0.0], "not measured"),
        (ABSOLUTE, [0.15], [], "met"),
        (ABSOLUTE, [0.16], [1.9], "missed"),
    ],
)
def test_medians_are_compared_with_the_bound(goal: Goal, gregor: list[float], kafka: list[float], verdict: str) -> None:
    (result,) = results([goal], {(goal.work, goal.figure): {GREGOR: gregor, KAFKA: kafka}})
    assert result.verdict == verdict


def test_goals_are_of_groups_that_are_measured_and_no_figure_has_two() -> None:
    assert {goal.group for goal in GOALS} == set(GROUPS)
    assert len({(goal.work, goal.figure) for goal in GOALS}) == len(GOALS)


def test_goals_of_the_driver_have_its_names() -> None:
    tests = {test for test, _ in CASES}
    for goal in GOALS:
        if goal.group in tests:
            assert goal.work in {work for (test, _), work in CASES.items() if test == goal.group}
            assert goal.figure in FIGURES.values()


def test_warming_rounds_errors_and_other_tests_do_not_count() -> None:
    def line(label: str, number: int, **figures: object) -> str:
        return json.dumps({"label": label, "test": "convert", "case": "fetch v3", "round": number, **figures})

    rounds: Rounds = {}
    add_lines(
        rounds,
        [
            line(KAFKA, -1, mb_s=1),
            line(KAFKA, 0, mb_s=700),
            line(GREGOR, 0, mb_s=1400.5, ok=True),
            line(GREGOR, 1, error="no answer", mb_s=2),
            json.dumps({"label": GREGOR, "test": "memory", "case": "fetch v3", "round": 0, "mb_s": 5}),
        ],
    )
    assert rounds == {("Fetch v3, 1 kB records", "MB/s"): {KAFKA: [700], GREGOR: [1400.5]}}


def test_the_table_and_the_picture_show_what_is_missed() -> None:
    found = results(
        [FASTER, CHEAPER, ABSOLUTE],
        {
            ("work", "MB/s"): {GREGOR: [100.0, 300.0, 200.0], KAFKA: [100.0]},
            ("work", "CPU s/GB"): {GREGOR: [0.9], KAFKA: [1.0]},
        },
    )
    _, _, faster, cheaper, absolute = lines(found)
    assert faster == "| work | MB/s | 100 | 200 (100-300) | 2.00 | >= 1.5 | met |"
    assert cheaper == "|  | CPU s/GB | 1.00 | 0.900 | 0.90 | <= 0.5 | missed |"
    assert absolute.endswith("|  |  |  | <= 0.15 | not measured |")
    drawn = picture(found)
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "work: MB/s" in drawn
    assert "exec to first answer" not in drawn
    assert [entry["verdict"] for entry in as_json(found)] == ["met", "missed", "not measured"]
