"""Models of a hub: found, read from afar, downloaded into the hub's own cache, checked, removed."""
