"""Resolve names of models and what is known of them: targets, what to read before a plan, headers and hub files."""
