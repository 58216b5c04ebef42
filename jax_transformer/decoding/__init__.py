"""§6.1 Decoding: beam search, and text to text with a trained model."""
