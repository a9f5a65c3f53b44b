"""The only owner of engines: it runs the commands of the scheduler, and hands out leases to requests."""
