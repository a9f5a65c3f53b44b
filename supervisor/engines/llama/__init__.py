"""llama-server as an engine: its state lines and its health, its account of memory, its saved slots."""
