"""Judge a request before an engine sees it: access, browsers, affinity, and large bodies in outline."""
