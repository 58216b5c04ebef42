"""§6 Scores: BLEU, perplexity, F1 of parses, and FLOPs."""
