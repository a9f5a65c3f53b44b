"""A cluster: daemons of several hosts that answer as one."""
