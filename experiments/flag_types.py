"""The kinds of flags that absl does not have: paths with `~`, whole numbers in plain digits."""

from absl import flags

from jax_transformer.files import expanded

flags.disclaim_key_flags()  # a flag defined here belongs to the command that defines it


class _PathParser(flags.ArgumentParser):
    """A parser of one path."""

    def parse(self, argument: str) -> str:
        """Return the path with `~` expanded, which the shell does not do in `--flag=~/file`."""
        return expanded(argument)


class _IntegerParser(flags.IntegerParser):
    """A parser of a whole number in ASCII digits; Python's int() takes those of every script."""

    def convert(self, argument: int | str) -> int:
        """Return the number."""
        if isinstance(argument, str) and not argument.isascii():
            raise ValueError("expected the digits 0 to 9")
        return super().convert(argument)


def define_path(name: str, meaning: str, *, several: bool = False) -> flags.FlagHolder:
    """Define a flag with the path of a file or a folder, in which `~` is the home folder.

    several: True if the flag may be repeated; its value is then a list.
    """
    if several:
        return flags.DEFINE_multi(_PathParser(), flags.ArgumentSerializer(), name, None, meaning)
    return flags.DEFINE(_PathParser(), name, None, meaning)


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
