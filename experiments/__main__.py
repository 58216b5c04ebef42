"""List the commands: python -m experiments."""

import ast
import sys
from pathlib import Path

from absl import app

from experiments import cli


def listing(package: Path) -> str:
    """Return a line for each command in the folder of a package."""
    lines = []
    for path in sorted(package.glob("[!_]*.py")):
        text = path.read_text(encoding="utf-8")
        if '\nif __name__ == "__main__":\n' in text:
            meaning = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
            lines.append(f"python -m {package.name}.{path.stem:<14} {meaning}")
    return "\n".join([*lines, "\nEach has --help."])


@cli.command
def main() -> None:
    """Print the list, which is the docstring of the program."""
    cli.show(sys.modules["__main__"].__doc__ or "")


__doc__ = listing(Path(__file__).parent)  # which `main` and --help print


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
