"""Own all engines: run the scheduler's commands, and hand out leases to requests."""
