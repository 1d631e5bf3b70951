"""Runs the generated programs of one server against their problems' tests, in a sandbox."""

from pathlib import Path

from ddtree.quality.coding import grade_server

grade_server(
    plan_file=Path(snakemake.input.plan),
    manifest_file=Path(snakemake.input.manifest),
    prompt_files=[Path(file) for file in snakemake.input.prompts],
    model_file=Path(snakemake.input.model),
    out=Path(snakemake.output[0]),
    project=Path.cwd(),
    allow_unisolated=snakemake.params.get("allow_unisolated", False),
    jobs=snakemake.threads,
)
