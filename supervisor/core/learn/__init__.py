"""What earlier starts teach about a planned one: what makes two comparable, and by how much a plan was off."""
