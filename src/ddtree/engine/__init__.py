"""The embedded engine: a small real server with SGLang's HTTP surface, for a CPU or one GPU."""

import os

# Read when PyTorch loads its OpenMP runtime. Threads that wait for each other spin for milliseconds by default: where
# anything else runs on the same cores, each of a step's hundreds of barriers then costs a scheduler's time slice (ten
# times the CPU time per token was seen). 1000 is what the runtime itself takes when it knows that the cores are shared.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
