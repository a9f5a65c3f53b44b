"""Run one engine: a process from its start to its end, its log, its HTTP client; one folder for each kind of engine."""
