"""What a request may and means before an engine sees it: access, browsers, affinity, large bodies in outline."""
