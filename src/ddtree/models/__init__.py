"""Getting checkpoints: GGUF packages, local folders and hub ids become one HF folder per model."""
