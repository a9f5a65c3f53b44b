"""What a name means and what is known of it: targets, what to read before a plan, headers and files from the hub."""
