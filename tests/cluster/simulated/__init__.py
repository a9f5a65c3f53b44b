"""A cluster in simulated time: the real scheduler, pool, member and choice of each node; store, network and engines are
played. A run of minutes takes a second, and the same seed gives the same run.
"""
