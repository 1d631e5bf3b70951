"""Draws the report's figures from the tables."""

from pathlib import Path

from ddtree.plan.schema import Plan
from ddtree.report import figures

plan = Plan.model_validate_json(Path(snakemake.input.plan).read_text())
figures.write(plan, Path(snakemake.input.tables), Path(snakemake.output[0]).parent)
