"""Command-line entry points; each parses absl flags and calls the library."""
