"""Many daemons as one: who is a member, which node answers a request, and how it gets there."""
