"""The operating system: paths, private folders, processes and records, sockets, logs, the terminal, the network."""
