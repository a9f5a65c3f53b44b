"""Many daemons as one: what nodes tell each other, who has what, and which node a request goes to."""
