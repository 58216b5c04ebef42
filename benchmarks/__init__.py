"""Measurements: each command prints one table."""
