import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from ddtree.report import charts, style
from ddtree.report.charts import MAX_MARKS, Chart, Panel, Point, Series

LOOKS = style.styles(synthetic.plan())


def drawn(chart: Chart, folder: Path) -> tuple[str, list[dict[str, str]], list[str]]:
    """The chart's LaTeX, the lines of its first data file, and what lies beyond the axis."""
    beyond = charts.write(chart, folder, folder)
    with (folder / f"{chart.name}-0.csv").open() as file:
        return (folder / f"{chart.name}.tex").read_text(), list(csv.DictReader(file)), beyond


def chart(*points: Point) -> Chart:
    return Chart("c", [Panel("p", [Series(LOOKS["ddtree-b7"], points)], ticks=[(0, "a_b"), (1, "50%")])])


def test_a_point_keeps_the_row_of_its_table_and_its_interval(tmp_path: Path) -> None:
    _, lines, _ = drawn(chart(Point(0, 2.0, 1.5, 3.0, row=17)), tmp_path)
    assert lines == [
        {
            "server": "ddtree-b7",
            "series": "0",
            "x": "0",
            "y": "2",
            "minus": "0.5",
            "plus": "1",
            "value": "2",
            "row": "17",
        }
    ]


@pytest.mark.parametrize("missing", [None, math.nan])
def test_a_missing_value_is_a_gap_and_not_a_zero(tmp_path: Path, missing: float | None) -> None:
    _, lines, _ = drawn(chart(Point(0, missing), Point(1, 2.0)), tmp_path)
    assert [line["y"] for line in lines] == ["nan", "2"]


def test_a_far_outlier_is_cut_at_the_edge_and_named(tmp_path: Path) -> None:
    _, lines, beyond = drawn(chart(*(Point(x, 1.0 + x / 10) for x in range(9)), Point(9, 1e9)), tmp_path)
    assert float(lines[-1]["y"]) < 5
    assert float(lines[-1]["value"]) == 1e9
    assert beyond == ["ddtree-b7: 1e+09"]


@given(st.integers(min_value=1, max_value=7), st.integers(min_value=1, max_value=3000))
def test_no_chart_has_more_marks_than_latex_can_hold(series: int, points: int) -> None:
    limit = MAX_MARKS // series
    kept = charts._thin([Point(x, 1.0) for x in range(points)], limit)
    assert len(kept) * series <= MAX_MARKS
    assert kept[0].x == 0
    assert len(kept) == points or points > limit


def test_names_are_escaped(tmp_path: Path) -> None:
    latex, _, _ = drawn(chart(Point(0, 1.0), Point(1, 2.0)), tmp_path)
    assert r"a\_b" in latex
    assert r"50\%" in latex


@pytest.mark.parametrize(("ratio", "limits"), [(1.0001, True), (1.2, True), (2.0, False)])
def test_a_narrow_logarithmic_axis_is_given_room(tmp_path: Path, ratio: float, limits: bool) -> None:
    """Below a ratio of about 1.1 between its ends TeX stops with `Dimension too large`."""
    narrow = replace(chart(Point(90, 1.0), Point(90 * ratio, 2.0)), log_x=True)
    latex, _, _ = drawn(narrow, tmp_path)
    assert ("xmin=" in latex) == limits


def test_a_server_without_values_is_neither_drawn_nor_in_the_legend(tmp_path: Path) -> None:
    empty = Series(LOOKS["ddtree-b15"], [Point(0, None)])
    full = Series(LOOKS["ddtree-b7"], [Point(0, 1.0)])
    latex, _, _ = drawn(Chart("c", [Panel("p", [empty, full])]), tmp_path)
    assert LOOKS["ddtree-b7"].color in latex
    assert LOOKS["ddtree-b15"].color not in latex
    assert latex.count(r"\addplot") == 1


def test_every_server_looks_different_and_methods_keep_their_hue() -> None:
    looks = list(LOOKS.values())
    assert len({look.rgb for look in looks}) == len(looks)
    assert len({(look.method, look.mark) for look in looks}) == len(looks)
    trees = [look for look in looks if look.method == "ddtree"]
    assert all(green == max(look.rgb) for look in trees for green in [look.rgb[1]])
    assert [sum(look.rgb) for look in trees] == sorted((sum(look.rgb) for look in trees), reverse=True)
