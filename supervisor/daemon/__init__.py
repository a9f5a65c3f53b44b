"""The running daemon: its lock and endpoint file, its HTTP server, and the one place that builds real objects."""
