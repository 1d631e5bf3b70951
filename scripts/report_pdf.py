"""Compiles the report."""

import sys
from pathlib import Path

from ddtree.report import latex

try:
    latex.compile(Path(snakemake.input.tex), Path(snakemake.log[0]))
except latex.CompileError as error:
    sys.exit(f"error: {error}")
