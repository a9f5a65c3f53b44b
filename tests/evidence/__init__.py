"""The truth that the memory estimate is checked against: what the real llama-server logs for models of every kind."""
