"""Learn from earlier starts: which starts are comparable with a planned one, and by how much their plans were off."""
