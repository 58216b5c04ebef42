"""The embedded corpus of the demo: English-German sentence pairs and English trees, by grammar.

lexicon.toml has the words, and phrases.py and clauses.py have the rules. sampler.py and
sentences.py draw random sentences, and splits.py makes train, dev and test of them.
"""

from jax_transformer.demo.splits import sentence_pairs as sentence_pairs
from jax_transformer.demo.splits import trees as trees
