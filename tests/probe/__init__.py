"""Tests of the probes."""
