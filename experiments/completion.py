"""Completion of commands and flags in a shell, by argcomplete."""

import argparse
import os
from collections.abc import Sequence

import argcomplete
from absl.flags import argparse_flags
from argcomplete.lexers import split_line


def named_command(names: Sequence[str]) -> str:
    """Return the command on the shell's line; complete it and exit if the line ends in it."""
    words = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    if words[1:]:
        os.environ["_ARGCOMPLETE"] = "2"  # what follows is completed from the second word on
        return words[1]
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("command", choices=names)
    argcomplete.autocomplete(parser)
    raise AssertionError("argcomplete ends the process")


def complete_flags() -> None:
    """Complete the last flag of the shell's line among those that are defined, and exit."""
    argcomplete.autocomplete(argparse_flags.ArgumentParser(add_help=False))
