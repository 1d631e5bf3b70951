"""Result files from somebody else, and what models say: typeset as text, never obeyed."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic
from synthetic import manifests

from ddtree.cells import seal
from ddtree.plan.files import PlanError
from ddtree.plan.load import load
from ddtree.report import figures, latex
from ddtree.report.results import BadResult
from ddtree.report.results import load as load_results

SECRET = "TheSecretOfAnotherFile"
# Fields by which files refer to each other; all other texts are free.
NAMES = frozenset({
    "server", "workload", "model", "key", "cell_key", "role", "status", "sha256", "conversation", "id", "verdict",
    "comparison", "baseline", "finish_reason", "method", "cell", "spec_hash", "type", "missing", "tokenizer_sha256",
    "engine",
})  # fmt: skip


def text_of(pdf: Path) -> str:
    return subprocess.run(["pdftotext", str(pdf), "-"], capture_output=True, text=True, check=True).stdout


def compiled(folder: Path, body: str) -> Path:
    tex = folder / "t.tex"
    tex.write_text("\\documentclass{article}\\begin{document}\nreached " + body + "\n\\end{document}\n")
    return latex.compile(tex)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.tex"
    path.write_text(SECRET)
    return path


@pytest.fixture
def report_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mit Leerzeichen ä"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    "reading", [r"\input{%s}", r"\input{../secret}", r"\openin5=%s \read5 to\x \x", r"\input{|cat %s}"]
)
def test_latex_reads_nothing_outside_the_report(secret: Path, report_folder: Path, reading: str):
    with pytest.raises(latex.CompileError):
        compiled(report_folder, reading.replace("%s", str(secret)))
    assert SECRET not in (report_folder / "t.log").read_text(errors="replace")


def test_latex_reads_the_report_s_own_files(report_folder: Path):
    (report_folder / "data").mkdir()
    (report_folder / "data/own.tex").write_text("own text")
    assert "own text" in text_of(compiled(report_folder, r"\input{data/own}"))


@pytest.mark.parametrize("place", ["../planted.tex", "/tmp/ddtree-planted.tex"])
def test_latex_writes_nothing_outside_the_report(report_folder: Path, place: str):
    with pytest.raises(latex.CompileError):
        compiled(report_folder, rf"\newwrite\out\immediate\openout\out={place}\immediate\write\out{{x}}")
    assert not (report_folder / place).exists()


def test_latex_starts_no_program(report_folder: Path):
    (report_folder / ".latexmkrc").write_text('system("touch started");\n')
    (report_folder / "latexmkrc").write_text('system("touch started");\n')
    pdf = compiled(report_folder, r"\immediate\write18{touch started}")
    assert "reached" in text_of(pdf)
    assert not (report_folder / "started").exists()


def hostile(content: object, payload: Iterator[str]) -> object:
    """`content` with every free text replaced."""
    match content:
        case str():
            return next(payload)
        case dict():
            return {k: v if k in NAMES else hostile(v, payload) for k, v in content.items()}
        case list():
            return [hostile(each, payload) for each in content]
        case _:
            return content


@pytest.mark.slow
def test_no_text_of_any_result_file_is_obeyed(secret: Path, tmp_path: Path):
    """Each file's free texts are commands to LaTeX, to a shell and to a browser."""
    orders = [
        rf"}}\input{{{secret}}}",
        r"\csname input\endcsname{" + str(secret) + "}",
        rf"\end{{document}} $ \[ \write18{{touch {tmp_path}/started}}",
        f"`touch {tmp_path}/started`; $(touch {tmp_path}/started)",
        "<script>fetch('//evil')</script>",
        "^^5cinput{" + str(secret) + "} \\catcode`\\@=0 @input{" + str(secret) + "}",
    ]
    plan = synthetic.write(tmp_path, only="short").model_copy(update={"title": orders[0]})

    def payload() -> Iterator[str]:
        while True:
            yield from orders

    changed = 0
    for path in (tmp_path / "results").rglob("*.json"):
        content = json.loads(path.read_text())
        bad = hostile(content, payload())
        assert isinstance(bad, dict)
        changed += bad != content
        path.write_text(json.dumps(bad | ({"sha256": seal(bad)} if "runs" in bad else {})))
    assert changed > len(manifests(tmp_path, plan))

    tables = synthetic.tables(tmp_path, plan)
    figures.write(plan, tables, tmp_path / "report")
    tex = latex.write(plan, tables, tmp_path / "report")
    shown = text_of(latex.compile(tex))
    assert SECRET not in shown
    assert "\\input" in shown  # it stands there as text
    assert not (tmp_path / "started").exists()
    for source in {*(tmp_path / "report").rglob("*.tex")} - {tmp_path / "report/data/macros.tex"}:
        own = re.sub(r"\\(input|includegraphics(\[[^]]*\])?)\{(data|figures)/[\w.-]+\}", "", source.read_text())
        assert not re.search(r"\\(input|write|csname|catcode)(?![A-Za-z])", own)


NAMING = ["sessions/ddtree-b7 server"] + [
    f"quality/{file} {key}" for file in ("coding/ddtree-b7", "lossless") for key in ("server", "workload")
]


@pytest.mark.parametrize("naming", NAMING)
def test_a_result_file_brings_no_names_of_its_own(tmp_path: Path, naming: str):
    plan = synthetic.write(tmp_path, only="short")
    file, key = naming.split()
    path = tmp_path / f"results/synthetic/{file}.json"
    path.write_text(re.sub(rf'"{key}":"(?!all)[^"]*"', rf'"{key}":"}}\\\\input{{x}}"', path.read_text()))
    with pytest.raises(BadResult, match=rf"{file}.json: {key}: .*input.* is not in the plan synthetic"):
        synthetic.tables(tmp_path, plan)


@pytest.mark.parametrize("key", ["server", "workload"])
def test_a_cell_of_another_name_is_unusable_and_said_to_be(tmp_path: Path, key: str):
    plan = synthetic.write(tmp_path, only="short")
    path = tmp_path / "results/synthetic/cells/ddtree-b7/short/c1.json"
    bad = json.loads(path.read_text()) | {key: r"}\input{x}"}
    path.write_text(json.dumps(bad | {"sha256": seal(bad)}))
    found = load_results(plan, manifests(tmp_path, plan))
    assert [(cell.server, cell.name, why) for cell, (_, why) in found.unusable.items()] == [
        ("ddtree-b7", "short/c1", "the file holds a cell of another name")
    ]


@pytest.mark.parametrize("name", ["x; touch y", "$(touch y)", "../x", r"\input", "<script>", "x y", "-rf"])
@pytest.mark.parametrize("key", ["plan", "servers", "workloads", "models"])
def test_names_that_become_paths_and_commands_are_refused_in_one_line(tmp_path: Path, key: str, name: str):
    plan = {
        "plan": "p",
        "baseline": "a",
        "models": {"m": {"target": {"path": "m"}}},
        "servers": {"a": {"model": "m", "method": "autoregressive"}},
        "workloads": {"w": {"source": "held_out"}},
    }
    if key == "plan":
        plan["plan"] = name
    else:
        plan[key] = {name: next(iter(plan[key].values()))} | plan[key]  # type: ignore[attr-defined, operator]
    path = tmp_path / "plan.yaml"
    path.write_text(json.dumps(plan))
    with pytest.raises(PlanError) as refused:
        load([path])
    assert any(key in line and "allowed" in line for line in str(refused.value).splitlines())
