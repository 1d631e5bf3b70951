"""Runs the generated programs of one server against their problems' tests, in a sandbox."""

from pathlib import Path

from ddtree.quality.coding import grade_server

grade_server(
    plan_file=Path(snakemake.input.plan),  # noqa: F821
    manifest_file=Path(snakemake.input.manifest),  # noqa: F821
    prompt_files=[Path(file) for file in snakemake.input.prompts],  # noqa: F821
    model_file=Path(snakemake.input.model),  # noqa: F821
    out=Path(snakemake.output[0]),  # noqa: F821
    project=Path.cwd(),
    allow_unisolated=snakemake.params.get("allow_unisolated", False),  # noqa: F821
    jobs=snakemake.threads,  # noqa: F821
)
