"""§3 The network: attention, layers and the Transformer, as pure Flax modules."""
