"""HTTP and nothing else: routers, the guard, errors as the envelopes of each API, the schema and its page."""
