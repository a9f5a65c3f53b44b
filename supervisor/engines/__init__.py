"""Run one engine: a llama-server process from its start to its end, its log, its HTTP client, its saved slots."""
