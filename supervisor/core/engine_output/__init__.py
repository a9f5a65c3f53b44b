"""What an engine writes, read: what a binary can do, state lines, footprints, chatter, causes of failure, errors."""
