"""Writes the report's LaTeX source and the macros of its numbers."""

from pathlib import Path

from ddtree.plan.schema import Plan
from ddtree.report import latex

plan = Plan.model_validate_json(Path(snakemake.input.plan).read_text())
latex.write(plan, Path(snakemake.input.tables), Path(snakemake.output.tex).parent)
