"""The doors: each parses flags and calls the package."""
