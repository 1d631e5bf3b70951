"""The embedded engine: a small real server with SGLang's HTTP surface, for a CPU or one GPU."""
