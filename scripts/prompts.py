"""Builds the prompt set of one workload under one model's tokenizer."""

import sys
from pathlib import Path

from ddtree.models import ModelFiles
from ddtree.plan.specs import PromptsSpec
from ddtree.workloads import WorkloadError, build, write

spec = PromptsSpec.model_validate_json(Path(snakemake.input.spec).read_text())
files = ModelFiles.read(Path(snakemake.input.model))
try:
    write(Path(snakemake.output[0]), build(spec.seed, spec.name, spec.workload, spec.model, files))
except WorkloadError as error:
    Path(snakemake.log[0]).write_text(f"{error}\n")
    sys.exit(f"error: {error}")
