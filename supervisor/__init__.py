"""Supervisor for many llama.cpp engines on one machine."""

__version__ = "0.1.0"
__distribution__ = "llama-supervisor"
