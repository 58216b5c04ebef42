"""The experiments of the paper (Tables 2, 3 and 4) and small ones, as data."""
