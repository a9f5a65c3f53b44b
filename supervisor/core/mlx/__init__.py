"""MLX models: their facts, from safetensors headers and `config.json`, and the bytes that mlx-lm allocates."""
