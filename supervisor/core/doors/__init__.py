"""Other programs' APIs: their requests turned into ones for an engine, an engine's answers into theirs."""
