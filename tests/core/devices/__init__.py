"""Tests of core/devices."""
