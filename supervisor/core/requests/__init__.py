"""Judge a request before an engine sees it: access, keys, browsers, affinity, and large bodies in outline."""
