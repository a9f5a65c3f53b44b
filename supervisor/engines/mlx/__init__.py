"""Models in safetensors by mlx-lm, each in a launcher of ours that an environment of its own runs."""
