"""The kinds of flags that absl does not have: paths with `~`, whole numbers in plain digits."""

import os

from absl import flags

from jax_transformer.data.text import listed_paths

flags.disclaim_key_flags()  # a flag defined here belongs to the command that defines it


class _PathParser(flags.ArgumentParser):
    """A parser of one path."""

    def parse(self, argument: str) -> str:
        """Return the path with `~` expanded, which the shell does not do in `--flag=~/file`."""
        path = os.path.expanduser(argument)
        if path.startswith("~"):
            raise ValueError(
                f"expected ~ and a user, found no such user; write ./{path} for a file"
            )
        return path


class _PathsParser(_PathParser):
    """A parser of several paths with commas between."""

    def parse(self, argument: str) -> str:
        """Return all of them with commas between."""
        return ",".join(map(super().parse, listed_paths(argument)))


class _IntegerParser(flags.IntegerParser):
    """A parser of a whole number in ASCII digits; Python's int() takes those of every script."""

    def convert(self, argument: int | str) -> int:
        """Return the number."""
        if isinstance(argument, str) and not argument.isascii():
            raise ValueError("expected the digits 0 to 9")
        return super().convert(argument)


def define_path(name: str, meaning: str) -> flags.FlagHolder:
    """Define a flag with the path of a file or a folder, in which `~` is the home folder."""
    return flags.DEFINE(_PathParser(), name, None, meaning)


def define_paths(name: str, meaning: str, *, several: bool = False) -> flags.FlagHolder:
    """Define a flag with several such paths, with commas between.

    several: True if the flag may be repeated; its value is then a list.
    """
    if several:
        return flags.DEFINE_multi(_PathsParser(), flags.ArgumentSerializer(), name, None, meaning)
    return flags.DEFINE(_PathsParser(), name, None, meaning)


def define_integer(
    name: str,
    default: int | None,
    meaning: str,
    *,
    lower_bound: int,
    upper_bound: int | None = None,
) -> flags.FlagHolder:
    """Define a flag with a whole number in a range."""
    return flags.DEFINE(_IntegerParser(lower_bound, upper_bound), name, default, meaning)
