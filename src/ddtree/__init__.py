"""ddtree-bench: measure autoregressive, DFlash-chain and DDTree decoding of one model, end to end."""

__version__ = "0.1.0"
