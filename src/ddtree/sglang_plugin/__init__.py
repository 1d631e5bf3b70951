"""DDTree for released SGLang: a plugin that builds, verifies and accepts draft trees on the GPU."""
