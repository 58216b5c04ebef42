"""The embedded English-German corpus of the demo, and its trees."""
