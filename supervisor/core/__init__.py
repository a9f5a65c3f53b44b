"""The functional core: what computes and decides. It touches nothing: no files, sockets, clock, environment or randomness."""
