"""The checker of annotations that the suite runs with: beartype, to which an int is a float too."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
