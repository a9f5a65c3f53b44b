"""The operating system: paths, private folders, processes and their records, sockets, logs, the terminal, the network."""
