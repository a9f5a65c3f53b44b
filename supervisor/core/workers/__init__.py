"""Other hosts' devices: what a worker and a daemon say to each other, join tokens, and when a worker is lost."""
