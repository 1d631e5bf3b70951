"""Prints what a run of the plan would do."""

from pathlib import Path

from ddtree.plan.layout import Layout
from ddtree.plan.schema import Plan
from ddtree.plan.show import show

plan = Plan.model_validate_json(Path(snakemake.input[0]).read_text())
text = show(plan, Layout(plan.plan), snakemake.params.retry_failed)
Path(snakemake.log[0]).write_text(text)
print(text)
