"""Time the real llama-server: on generated models, to learn what this machine does."""
