"""The models there are and what is set for each; what a new configuration changes of that."""
