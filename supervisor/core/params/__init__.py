"""The parameters of requests: whose they are, their bounds, and what becomes of each before an engine sees it."""
