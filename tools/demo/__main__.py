"""Write the corpora that jax_transformer/demo reads, the same bytes at every call.

python -m tools.demo
"""

import bz2
from collections.abc import Iterable

from jax_transformer.demo import FOLDER, SPLITS
from jax_transformer.files import write_bytes
from jax_transformer.parsing.trees import with_root, write_tree
from tools.demo.splits import sentence_pairs, trees


def corpora() -> dict[str, Iterable[str]]:
    """Return the lines of each file by its name."""
    files: dict[str, Iterable[str]] = {}
    for split in SPLITS:
        files[f"{split}.en"], files[f"{split}.de"] = zip(*sentence_pairs(split), strict=True)
        files[f"{split}.mrg"] = [write_tree(with_root(tree)) for tree in trees(split)]
    return files


def main() -> None:
    """Write every file."""
    for name, lines in corpora().items():
        content = "".join(f"{line}\n" for line in lines).encode()
        packed = bz2.compress(content)
        write_bytes(FOLDER / f"{name}.bz2", packed)
        print(f"{name}.bz2: {len(content):,} bytes in {len(packed):,}")


if __name__ == "__main__":
    main()
