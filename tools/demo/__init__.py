"""The grammar of the demo's corpora.

lexicon.toml has the words, phrases.py and clauses.py the rules; sampler.py and sentences.py draw
from them, splits.py makes train, dev and test, and __main__.py writes the files of the package.
"""
