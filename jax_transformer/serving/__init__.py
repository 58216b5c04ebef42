"""A trained model behind HTTP: requests of several clients are batched together."""
