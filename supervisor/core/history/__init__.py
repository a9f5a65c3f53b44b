"""What is told of requests and loads that have ended: their records, questions about them, and the table of metrics."""
