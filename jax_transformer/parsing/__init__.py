"""§6.3 Constituency parsing: trees, their linearization, constrained search and EVALB."""
