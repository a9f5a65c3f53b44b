"""Plan with the newest look at the machine and what is known of a model; learn from what engines took."""
