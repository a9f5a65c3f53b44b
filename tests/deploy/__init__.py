"""What is in deploy/: a cluster in containers."""
