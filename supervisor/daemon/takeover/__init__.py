"""A new image of the daemon in place of the running one: engines, listeners and requests go on."""
