"""Prints for each cell why a run would measure it or not."""

from pathlib import Path

from ddtree.plan.layout import Layout
from ddtree.plan.schema import Plan
from ddtree.plan.why import why

plan = Plan.model_validate_json(Path(snakemake.input[0]).read_text())
text = why(plan, Layout(plan.plan), snakemake.params.retry_failed)
Path(snakemake.log[0]).write_text(text)
print(text, end="")
