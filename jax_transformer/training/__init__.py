"""§5 Training: the loss, the optimizer and one pure training step."""
