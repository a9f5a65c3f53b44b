"""The newest look at the machine and what is known of a model become a plan; what engines took is learned."""
