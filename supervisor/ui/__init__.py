"""The dashboard: a page of plain modules for browsers, without a build step, and the list of its files."""
