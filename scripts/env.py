"""Builds the Python environment of one engine."""

import sys
from pathlib import Path

from ddtree.envs import EnvError, build

try:
    build(snakemake.wildcards.engine, Path().absolute())  # noqa: F821
except EnvError as error:
    Path(snakemake.log[0]).write_text(f"{error}\n")  # noqa: F821
    sys.exit(f"error: {error}")
