"""The functional core: what computes and decides. It touches no files, sockets, clock, environment or randomness."""
