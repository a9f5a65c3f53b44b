"""Relay requests: a client's bytes in, a lease, the engine's bytes back, with cancellation on every path."""
