"""Read what an engine prints: capabilities of a binary, state lines, footprints, chatter, causes of failure, errors."""
