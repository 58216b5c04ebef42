"""The alignment error rate of word alignments (Och and Ney 2003)."""

import re
from collections.abc import Iterable

from jax_transformer.decoding.alignments import Alignment
from jax_transformer.errors import InputError

_LINK = re.compile("([0-9]{1,9})([-p])([0-9]{1,9})")


def alignment_error_rate(
    found: Iterable[Alignment], gold: Iterable[tuple[Alignment, Alignment]]
) -> float:
    """Return AER = 1 - (|A and S| + |A and P|) / (|A| + |S|) over all sentence pairs, from 0 to 1.

    found: A, the links of each pair. gold: the links of each pair that are sure, S, and those that
    are possible, P, which need not repeat the sure ones.

    Raises InputError for lists of different lengths, or if there is no link that is found or sure.

    Two of three links are sure ones, one is possible; a fourth link, a sure one, is missed:

    >>> gold = [([(0, 0), (1, 1), (3, 2)], [(2, 1)])]
    >>> alignment_error_rate([[(0, 0), (1, 1), (2, 1)]], gold)  # 1 - (2 + 3) / (3 + 3)
    0.16666666666666663
    """
    found, gold = list(found), list(gold)
    if len(found) != len(gold):
        raise InputError(
            f"expected gold links for each pair, found {len(found):,} pairs and {len(gold):,} with "
            "gold links; give those of the same pairs"
        )
    right = total = 0
    for links, (sure, possible) in zip(found, gold, strict=True):
        right += len({*links} & {*sure}) + len({*links} & {*sure, *possible})
        total += len({*links}) + len({*sure})
    if not total:
        raise InputError("expected links that were found or are sure, found none; align the pairs")
    return 1 - right / total


def parse_gold(line: str) -> tuple[Alignment, Alignment]:
    """Return the sure and the possible links of a line: `0-0 1p2` has one of each.

    Raises InputError for anything else.

    >>> parse_gold("0-0 1p2 3-1")
    ([(0, 0), (3, 1)], [(1, 2)])
    """
    links: dict[str, Alignment] = {"-": [], "p": []}
    for part in line.split():
        link = _LINK.fullmatch(part)
        if not link:
            raise InputError(
                f"expected links as 0-0, or 1p2 if they are possible, found {part!r}; mend the line"
            )
        links[link[2]].append((int(link[1]), int(link[3])))
    return links["-"], links["p"]
