"""Measurements: one command each, printing a table."""
