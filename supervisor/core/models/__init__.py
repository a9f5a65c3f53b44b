"""The models there are, with what is set for each, and what a new configuration changes."""
