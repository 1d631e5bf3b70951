"""Builds the Python environment of one engine."""

import sys
from pathlib import Path

from ddtree.envs import EnvError, build

try:
    build(snakemake.wildcards.engine, Path().absolute())
except EnvError as error:
    Path(snakemake.log[0]).write_text(f"{error}\n")
    sys.exit(f"error: {error}")
