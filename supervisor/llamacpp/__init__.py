"""`llama-server` itself: located, probed, installed from a release or built from source."""
