"""List the commands: python -m experiments."""

import ast
import difflib
import os
import runpy
import sys
from pathlib import Path

from experiments import cli


def commands(package: Path) -> dict[str, str]:
    """Return the source text of each command in the folder of a package, by name."""
    texts = {path.stem: path.read_text("utf-8") for path in sorted(package.glob("[!_]*.py"))}
    return {name: text for name, text in texts.items() if '\nif __name__ == "__main__":\n' in text}


def listing(package: Path) -> str:
    """Return a line for each command in the folder of a package."""
    lines = []
    for name, text in commands(package).items():
        meaning = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        lines.append(f"python -m {package.name}.{name:<14} {meaning}")
    return "\n".join([*lines, "\nEach has --help."])


@cli.command
def main() -> None:
    """Print the list, which is the docstring of the program."""
    cli.show(sys.modules["__main__"].__doc__ or "")


def run(package: Path, call: str = cli.CALL) -> None:
    """Run the command of a package that the first argument names; list all if there is none.

    call: what a user writes before a command's name.
    """
    cli.call = call
    names = [*commands(package)]
    if "_ARGCOMPLETE" in os.environ:  # a shell has called, to complete what a user writes
        from experiments.completion import named_command

        sys.argv[1:] = [named_command(names)]
    given = sys.argv[1] if sys.argv[1:] else ""
    name = given.replace("-", "_")
    if not given or given.startswith("-"):
        sys.modules["__main__"].__doc__ = listing(package)  # which `main` and --help print
        cli.run(main)
    elif name in names:
        del sys.argv[1]
        runpy.run_module(f"{package.name}.{name}", run_name="__main__", alter_sys=True)
    else:
        near = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean {near[0]}?" if near else "see --help"
        cli.refuse(f"{given!r}: there is no such command; {meant}")


if __name__ == "__main__":
    run(Path(__file__).parent)
