"""The embedded corpus of the demo: English-German sentence pairs and English trees, by grammar.

lexicon.toml has the words, phrases.py and clauses.py the rules; sampler.py and sentences.py draw
from them, and splits.py makes train, dev and test.
"""

from jax_transformer.demo.splits import sentence_pairs as sentence_pairs
from jax_transformer.demo.splits import trees as trees
