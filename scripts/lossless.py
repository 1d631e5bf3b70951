"""Compares every server's greedy answers with the baseline's."""

from pathlib import Path

from ddtree.quality.lossless import compare_plan

compare_plan(
    plan_file=Path(snakemake.input.plan),  # noqa: F821
    manifest_files=[Path(file) for file in snakemake.input.manifests],  # noqa: F821
    out=Path(snakemake.output[0]),  # noqa: F821
)
