"""§5.1 Data: text, vocabularies, token stores and batches."""
