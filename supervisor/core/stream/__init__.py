"""The streams that engines answer with: events cut out, relayed by API, folded into one object."""
