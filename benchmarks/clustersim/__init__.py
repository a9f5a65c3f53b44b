"""A cluster of up to 200 nodes on one machine: real NATS servers and schedulers, engines that are played."""
