"""Compares every server's greedy answers with the baseline's."""

from pathlib import Path

from ddtree.quality.lossless import compare_plan

compare_plan(
    plan_file=Path(snakemake.input.plan),
    manifest_files=[Path(file) for file in snakemake.input.manifests],
    out=Path(snakemake.output[0]),
)
