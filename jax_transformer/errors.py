"""The one exception that means: the input is wrong, and here is how to mend it."""


class InputError(ValueError):
    """Something the user gave cannot be used.

    The message is one line: what was expected, what was found, where (file and line, or setting)
    and what to do about it. The commands in experiments/ print it without a traceback and exit
    with status 2.
    """
