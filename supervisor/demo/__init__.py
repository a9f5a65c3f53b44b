"""The built-in model: a maker of small scripted models, and the texts of the one that `demo` runs."""
