"""Derives every table from the results."""

import sys
from pathlib import Path

from ddtree.plan.schema import Plan
from ddtree.report import tables
from ddtree.report.results import BadResult

given = snakemake.input
try:
    tables.write(
        plan=Plan.model_validate_json(Path(given.plan).read_text()),
        manifests=[Path(file) for file in given.manifests],
        prompts=[Path(file) for file in given.prompts],
        coding=[Path(file) for file in given.coding],
        lossless=Path(given.lossless),
        out=Path(snakemake.output[0]),
    )
except BadResult as error:
    Path(snakemake.log[0]).write_text(f"{error}\n")
    sys.exit(f"error: {error}")
