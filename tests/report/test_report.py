import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import synthetic

from ddtree.report import figures, latex, tables

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Report:
    folder: Path
    tables: Path
    tex: str
    log: str
    text: str  # of the PDF, white space folded


def source(root: Path, **options: object) -> tuple[Path, Path]:
    """The report's LaTeX source of a synthetic tree, and the folder of its tables."""
    plan = synthetic.write(root, **options)  # type: ignore[arg-type]
    derived = synthetic.tables(root, plan)
    figures.write(plan, derived, root / "report")
    return latex.write(plan, derived, root / "report"), derived


def build(root: Path, **options: object) -> Report:
    """Compiled somewhere else than where it was written: the source needs nothing but its own folder."""
    written, derived = source(root, **options)
    folder = written.parent.rename(root / "moved")
    pdf = latex.compile(folder / written.name, root / "latex.log")
    text = subprocess.run(["pdftotext", str(pdf), "-"], capture_output=True, text=True, check=True).stdout
    return Report(
        folder,
        derived,
        (folder / written.name).read_text(),
        pdf.with_suffix(".log").read_text(),
        " ".join(text.split()).replace("’", "'"),
    )


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """With jitter, a failed server, a failed cell and hostile text everywhere."""
    return build(tmp_path_factory.mktemp("report"), jitter=0.05)


def test_all_sections_are_there_in_order(report: Report) -> None:
    titles = [
        "Summary",
        "Set-up",
        "Throughput by method and workload",
        "Scaling with concurrency and context",
        "Draft budget and acceptance",
        "Correctness",
    ]
    places = [report.text.index(f"{i} {title}") for i, title in enumerate(titles, start=1)]
    assert places == sorted(places)
    assert "What was not measured" in report.text


def test_the_summary_names_the_winner_with_interval_and_n(report: Report) -> None:
    assert "This run is a small model on a CPU." in report.text
    best = (
        pd.read_csv(report.tables / "best.csv")
        .set_index(["concurrency", "against", "metric"])
        .loc[(1, "baseline", "e2e")]
    )
    said = f"a speed-up of {best.ratio:.2f} (95 % interval {best.low:.2f} to {best.high:.2f}, n = {best.n})"
    assert f"Concurrency 1. ddtree-b7 is the fastest, with {said} over autoregressive" in report.text


def test_wrong_answers_are_said_in_the_summary(report: Report) -> None:
    assert f"Some answers are wrong: beyond rounding they differ from the baseline's with {synthetic.WRONG_SERVER}" in (
        report.text
    )


def test_failures_appear_with_reason_and_log_lines(report: Report) -> None:
    appendix = report.text[report.text.index("Every cell") :]
    for expected in ("out_of_memory", "RuntimeError: can't allocate memory", "cell_timeout", "last words", "not_run"):
        assert expected in appendix


def test_a_mean_over_fewer_workloads_than_others_is_marked(report: Report) -> None:
    pooled = pd.read_csv(report.tables / "speedups.csv").query(
        "server == 'prompt-lookup' and workload == 'all' and category == 'all' and concurrency == 4 "
        "and metric == 'e2e' and against == 'baseline'"
    )
    assert f"{pooled['ratio'].item():.2f} [{pooled['low'].item():.2f}, {pooled['high'].item():.2f}] †" in report.text


def test_hostile_text_is_printed_and_not_obeyed(report: Report) -> None:
    assert r"50% of $x_1$ & #2 {\input{/etc/passwd}}" in report.text.replace("/ etc", "/etc")
    assert "root:x:0" not in report.text
    assert "<U+4E2D>" in report.text


def test_the_layout_has_no_overfull_box_and_no_open_reference(report: Report) -> None:
    assert "Overfull" not in report.log
    assert "undefined" not in report.log
    assert "Missing character" not in report.log


def test_a_number_of_the_prose_is_found_in_its_table_and_cell_file(report: Report) -> None:
    used = set(re.findall(r"\\val\{([^}]*)\}", report.tex))
    macros = (report.folder / "data" / "macros.tex").read_text()
    defined = dict(re.findall(r"\\defval\{([^}]*)\}\{\\num\{([^}]*)\}\}", macros))
    assert used == set(defined)
    assert len(used) > 10
    for key, printed in defined.items():
        table, row, column, *_ = key.split(":")
        record = pd.read_csv(report.tables / f"{table}.csv").iloc[int(row)]
        scale = 100 if key.endswith(":percent") else 1
        digits = len(printed.partition(".")[2])
        assert f"{record[column] * scale:.{digits}f}" == printed
        assert all(Path(path).is_file() for path in record["path"].split())


def test_a_point_of_a_chart_is_a_row_of_a_table(report: Report) -> None:
    drawn = pd.read_csv(report.folder / "data" / "speedup-0.csv").dropna(subset=["row"])
    table = pd.read_csv(report.tables / "speedups.csv")
    assert len(drawn) == 4 * 5
    for point in drawn.itertuples():
        record = table.iloc[int(point.row)]
        assert record["server"] == point.server
        assert record["ratio"] == pytest.approx(point.value, rel=1e-4)


def test_a_run_without_a_single_cell_still_gives_a_report(tmp_path: Path) -> None:
    nothing = build(tmp_path, arms={})
    assert "No cell was measured, so there is no result." in nothing.text
    assert "out_of_memory" in nothing.text
    assert "undefined" not in nothing.log


def test_a_run_without_the_baseline_says_that_nothing_can_be_compared(tmp_path: Path) -> None:
    arms = {name: arm for name, arm in synthetic.ARMS.items() if name in ("dflash-chain16", "ddtree-b7")}
    partial = build(tmp_path, arms=arms)
    assert "Nothing can be compared with autoregressive" in partial.text
    assert "beats dflash-chain16" in partial.text
    assert "undefined" not in partial.log


def test_a_slow_drafter_is_reported_as_a_loss(tmp_path: Path) -> None:
    slow = synthetic.Arm("ddtree", 400, (2, 4), 8, {"budget": 7})
    written, _ = source(tmp_path, arms={"autoregressive": synthetic.ARMS["autoregressive"], "ddtree-b7": slow})
    text = written.read_text().replace(r"\arm{autoregressive}", "baseline").replace(r"\arm{ddtree-{}b7}", "tree")
    assert "baseline is the fastest: the best of the others, tree, has a speed-up of" in text
    assert ", a loss." in text


def test_two_conversations_are_too_few_for_a_winner(tmp_path: Path) -> None:
    written, _ = source(tmp_path, only="very-long")
    assert "Too few conversations to name a winner." in written.read_text()
    assert "is the fastest" not in written.read_text()


def test_a_speedup_within_the_noise_is_no_winner(tmp_path: Path) -> None:
    same = synthetic.Arm("ddtree", 40, (0,), 8, {"budget": 7})
    arms = {"autoregressive": synthetic.ARMS["autoregressive"], "ddtree-b7": same}
    written, _ = source(tmp_path, arms=arms, jitter=0.05)
    assert "No winner: the best server" in written.read_text()


def test_a_failed_compilation_shows_the_decisive_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "ddtree.tex"
    file.write_text("\\documentclass{article}\n\\begin{document}\nfine\n\\nosuchmacro here\n\\end{document}\n")
    with pytest.raises(latex.CompileError) as failed:
        latex.compile(file, tmp_path / "log")
    message = str(failed.value)
    assert "Undefined control sequence" in message
    assert r"l.4 \nosuchmacro" in message
    assert len(message.splitlines()) <= 6


def test_shell_escape_is_off(tmp_path: Path) -> None:
    file = tmp_path / "ddtree.tex"
    file.write_text(
        "\\documentclass{article}\n\\begin{document}\nx\\immediate\\write18{touch escaped}\n\\end{document}\n"
    )
    latex.compile(file)
    assert not (tmp_path / "escaped").exists()


def test_tables_are_read_as_written(report: Report) -> None:
    assert set(tables.read(report.tables)) == {*tables.TABLES, "pooled"}
