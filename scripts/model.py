"""Prepares one model and writes where it lies, with its hashes."""

import sys
from pathlib import Path

from ddtree.models import ModelError, prepare
from ddtree.plan.specs import ModelSpec

spec = ModelSpec.model_validate_json(Path(snakemake.input.spec).read_text())
out = Path(snakemake.output[0])
try:
    prepare(spec.name, spec.model, Path(), out.parent).write(out)
except ModelError as error:
    Path(snakemake.log[0]).write_text(f"{error}\n")
    sys.exit(f"error: {error}")
