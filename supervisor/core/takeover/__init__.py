"""Take over from a running daemon: what is carried from one process to the next, and what the two tell each other."""
