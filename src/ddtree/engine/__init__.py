"""The embedded engine: a small real server with SGLang's HTTP surface, for a CPU or one GPU."""

import os

# Read when PyTorch loads its OpenMP runtime: how long threads that wait for each other spin. By default it is many
# milliseconds, so that on cores that anything else uses each of a step's hundreds of barriers costs a time slice (ten
# times the CPU time per token was seen). 8000 spans the gaps between two products, so an idle machine loses nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "8000")
