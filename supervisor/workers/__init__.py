"""Other hosts' devices: the gateway process by which a daemon reaches them, and the worker that offers its own."""
