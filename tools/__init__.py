"""Commands for maintainers, which are not installed."""
