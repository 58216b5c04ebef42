"""The shared parts of the commands: flags, output, and one clear line for every user's mistake."""

import contextlib
import difflib
import errno
import inspect
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, NoReturn

from absl import app, flags
from absl import logging as absl_logging

from jax_transformer import __version__
from jax_transformer.config import FREE_SETTINGS, SETTINGS
from jax_transformer.data.text import decode_lines
from jax_transformer.errors import OURS, InputError
from jax_transformer.files import check_regular, naming
from jax_transformer.runtime import end_process

if TYPE_CHECKING:
    from jax_transformer.runs.pipeline import Outcome

logger = logging.getLogger(__name__)

FLAGS = flags.FLAGS
FLAGS.set_gnu_getopt(True)  # flags may follow positional arguments too
flags.disclaim_key_flags()  # a flag defined by a function here belongs to the command that calls it
flags.DEFINE_bool("h", False, "Show this help.", module_name=__name__)
flags.DEFINE_bool("version", False, "Show the version.", module_name=__name__)

# All but tab and newline, the C1 controls, and the halves of surrogate pairs, which are not UTF-8.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")

CALL = "python -m experiments."  # before a command's name, in the texts of all files
call = CALL  # what a person is shown in its place; the program jax-transformer has another

OUT_OF_MEMORY = (
    "memory ran out: {}; in training lower training.batch_tokens or raise training.accumulate, in "
    "decoding lower decoding.batch_tokens or decoding.beam_size, or take a smaller model"
)

_SPACE = "; free some space and run the same command again"
_RIGHTS = "; give a path where you may read and write"
REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EROFS: _RIGHTS,
    errno.ENAMETOOLONG: "; give a shorter name",
    errno.EEXIST: "; a file is in the way of a folder, so give another path",
    errno.ENOTDIR: "; a file is in the way of a folder, so give another path",
}


def printable(text: str) -> str:
    r"""Escape the control characters of a text, which a terminal obeys, as `\x1b` and so on.

    Commands that it names are written as this one was called.
    """
    return escaped(text.replace(CALL, call))


def escaped(text: str) -> str:
    """Escape the control characters of a text alone."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class _Formatter(logging.Formatter):
    """A formatter that writes the message, after the level if it is a warning or an error.

    On a terminal it first erases a progress bar.
    """

    def format(self, record: logging.LogRecord) -> str:
        erase = "\r\x1b[K" if sys.stderr.isatty() else ""
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{erase}{level}{printable(super().format(record))}"


def _is_shown(record: logging.LogRecord) -> bool:
    """Return False for INFO of other libraries, and for tracebacks of what orbax raises again.

    asyncio logs the other failed tasks of such a save, "Task exception was never retrieved", and
    what a client sends after its answer that is not HTTP. What else it logs nobody raises. uvicorn
    logs requests that a second Ctrl-C has cancelled. huggingface_hub writes its own records.
    """
    if record.name.startswith("huggingface_hub."):
        return False
    lost = record.name == "asyncio" and "exception was never retrieved" in record.getMessage()
    if record.exc_info and ("/orbax/" in record.pathname or lost):
        return False
    kind = record.exc_info and record.exc_info[0]
    if kind and (kind.__module__.startswith("h11.") or kind.__name__ == "CancelledError"):
        return False
    ours = record.name.split(".")[0] in ("jax_transformer", "experiments", "benchmarks", "__main__")
    return ours or record.levelno != logging.INFO


def _open_streams() -> None:
    """Write standard output in UTF-8, and open /dev/null as standard error if it is closed.

    Programs that a daemon starts have it closed. The next file would get its number, and libraries
    in C would write into that file.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    if sys.stderr is None:
        while (number := os.open(os.devnull, os.O_RDWR)) < 2:
            pass  # that of standard input or output, which is closed, too
        sys.stderr = open(number, "w", encoding="utf-8")  # noqa: SIM115


def show_log_lines() -> None:
    """Show log lines as plain text on standard error."""
    absl_logging.use_absl_handler()
    handler = absl_logging.get_absl_handler().python_handler
    handler.setFormatter(_Formatter())
    handler.addFilter(_is_shown)


def parse_flags(argv: Sequence[str]) -> list[str]:
    """Parse the command line for `absl.app.run`; returns the positional arguments.

    --help, -h and --version end the process with exit status 0; a mistake in a flag with one line
    and exit status 2, as other mistakes do. All of it happens before JAX is imported, because the
    commands import what needs JAX inside their `main`.
    """
    if "_ARGCOMPLETE" in os.environ:
        from experiments.completion import complete_flags

        complete_flags()
    _open_streams()
    program = sys.modules["__main__"]
    program.__doc__ = printable(program.__doc__ or "")  # which --help prints
    try:
        _check_streams()
        _check_flagfiles(argv)
        positional = FLAGS(argv)
        _check_given()
    except flags.UnrecognizedFlagError as error:
        message = _unknown_flag(error.flagname, [name for name in FLAGS if len(name) > 1])
    except InputError as error:
        message = str(error)
    except UnicodeDecodeError as error:  # an argument cannot raise it
        message = f"--flagfile: expected a file in UTF-8, found {error}; save it in UTF-8"
    except (flags.Error, ValueError) as error:  # absl's own --stderrthreshold raises the second
        message = f"{' '.join(str(error).split())} (see --help)"
    except (SystemExit, BrokenPipeError):  # after --help; absl would end with 1
        sys.exit(command(lambda: None)(argv[:1]))
    else:
        if FLAGS.version:
            sys.exit(command(lambda: write(f"jax_transformer {__version__}\n"))(argv[:1]))
        if FLAGS.h:
            sys.exit(command(lambda: app.usage(shorthelp=True, writeto_stdout=True))(argv[:1]))
        return positional
    refuse(message)


def refuse(message: str) -> NoReturn:
    """End the process with one line about a mistake, and exit status 2."""
    _open_streams()
    print(f"error: {printable(message)}", file=sys.stderr)
    sys.exit(2)


def _unknown_flag(flag: str, known: Sequence[str]) -> str:
    """Return one line about a flag that is not known; it may be a setting, or a mistyping."""
    name = flag.lower().replace("-", "_").replace(".", "_")
    # Commands that do not train change what a trained model may change.
    free = "" if {"experiment", "row"} & {*known} else FREE_SETTINGS
    leaves = {s: s.partition(".")[2] for s in SETTINGS if "set" in known and s.startswith(free)}
    meant = name if name in leaves.values() else OURS.get(name, name)
    settings = [s for s, leaf in leaves.items() if meant in (s.replace(".", "_"), leaf)]
    near = difflib.get_close_matches(meant, known, n=1)
    ours = f"--set={settings[0]}=VALUE" if settings else f"--{near[0]}" if near else ""
    return f"--{flag}: there is no such flag; " + (
        f"did you mean {ours}?" if ours else "see --help"
    )


def _check_flagfiles(argv: Sequence[str]) -> None:
    """Raise flags.Error for a flagfile without a name, which absl would leave out."""
    for argument, following in pairwise([*argv, ""]):
        if re.fullmatch("--?flagfile=?", argument) and (argument[-1] == "=" or not following):
            raise flags.Error("--flagfile=: expected a file, found none; leave the flag out")


def _check_given() -> None:
    """Raise flags.Error if a flag that takes one value was given twice, or an empty value."""
    for name in FLAGS:
        flag = FLAGS[name]
        value = flag.value
        if flag.present and (value in ("", []) or (isinstance(value, list) and "" in value)):
            # a variable of the shell that is not set
            raise flags.Error(f"--{name}=: expected a value, found none; leave the flag out")
        if flag.present > 1 and not isinstance(flag, flags.MultiFlag):
            raise flags.Error(f"--{flag.name} is given {flag.present} times; give it once")


def check_output(path: Path, name: str, mark: str, contents: str) -> None:
    """Raise InputError if writing a file would replace one that the command did not write.

    name: the path or flag, for messages. mark: text near the beginning of each file that the
    command writes. contents: a name for such files.
    """
    if path.is_dir():
        found = "a folder"
    elif not path.exists():
        return
    else:
        check_regular(path)
        with path.open("rb") as file:
            if mark.encode() in file.read(2000):
                return
        found = "another file"
    raise InputError(
        f"{name}: expected a new file, or {contents} that this command wrote, found {found}; give "
        "another path"
    )


def show(text: str) -> None:
    """Print text for a person; control characters in it, for example in names, are escaped."""
    write(f"{printable(text)}\n")


def write(text: str, *, flush: bool = False) -> None:
    """Write results to standard output; an OSError names it."""
    with naming("standard output"):
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()


def show_outcome(outcome: "Outcome") -> int:
    """Show the end of a training; return the exit status."""
    if outcome.text:
        show(outcome.text)
    return 128 + outcome.stopped_by if outcome.stopped_by else 0


def count_input_lines() -> int | None:
    """Count the lines on standard input without consuming them; return None for a pipe."""
    if sys.stdin is None or not sys.stdin.buffer.seekable():
        return None
    start = sys.stdin.buffer.tell()
    count = sum(1 for _ in sys.stdin.buffer)
    sys.stdin.buffer.seek(start)
    return count


def input_lines() -> Iterator[str]:
    """Return the lines of standard input. Raises InputError if it is closed."""
    if sys.stdin is None:
        raise InputError("expected a standard input to read from, found it closed; open it")
    return decode_lines(sys.stdin.buffer, "standard input")


def command(main: Callable[..., int | None]) -> Callable[[Sequence[str]], int]:
    """Decorate a command's `main` for `absl.app.run`: a user's mistake becomes one line.

    The parameters of `main` are the command's positional arguments. The exit status is what `main`
    returns (None is 0), 2 after a mistake, 130 after Ctrl-C, and 141 (SIGPIPE) if the reader of
    standard output has gone. Bugs keep their traceback.
    """
    names = [name.upper() for name in inspect.signature(main).parameters]

    def run(argv: Sequence[str]) -> int:
        show_log_lines()
        try:
            _check_streams()
            status = main(*_positional(argv[1:], names)) or 0
            write("", flush=True)
            return status
        except (Exception, KeyboardInterrupt) as error:
            status = _exit_status(error)
            end_process(status)  # returns unless this process is one of several
            return status

    return run


def run(main: Callable[[Sequence[str]], int]) -> None:
    """Run a command, the result of `command`; a process that failed ends at once.

    Its usual end would wait for threads, after a failed save for ten minutes for those of orbax.
    """
    try:
        app.run(main, flags_parser=parse_flags)
    except SystemExit as end:
        if end.code == 2:
            end_process(2, always=True)
        raise


def _check_streams() -> None:
    """Raise InputError for arguments that are not UTF-8, or a closed standard output."""
    for argument in sys.argv:
        if any("\udc80" <= letter <= "\udcff" for letter in argument):
            raise InputError(f"expected arguments in UTF-8, found {argument!r}; rename the file")
    if sys.stdout is None:
        raise InputError("expected a standard output to write to, found it closed; open it")


def _positional(values: Sequence[str], names: Sequence[str]) -> Sequence[str]:
    """Return the positional arguments. Raises InputError unless there is one for each name."""
    if len(values) != len(names):
        taken = f"takes the arguments {' '.join(names)}" if names else "takes flags only"
        found = repr(" ".join(values)) if values else "none"
        raise InputError(f"this command {taken}, found {found}; see --help")
    return values


def _exit_status(error: BaseException) -> int:
    """Log an error that a user can mend, and return the exit status; raise a bug again."""
    if isinstance(error, KeyboardInterrupt):
        logger.info("interrupted")
        return 128 + signal.SIGINT
    if isinstance(error, BrokenPipeError):
        _discard_output()
        return 128 + signal.SIGPIPE
    line = _user_message(error)
    if line is None:
        raise error
    logger.error(line.replace("\n", " "))
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        _discard_output()
    return 2


def _user_message(error: BaseException) -> str | None:
    """Return one line about an error that a user can mend; None for a bug."""
    first = str(error).partition("\n")[0]
    if isinstance(error, InputError):
        return str(error)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}{REMEDIES.get(error.errno or 0, '')}"
    jax = sys.modules.get("jax")  # until it is imported, no error is its own
    from_jax = isinstance(error, jax.errors.JaxRuntimeError) if jax else False
    if isinstance(error, MemoryError) or (from_jax and "RESOURCE_EXHAUSTED" in str(error)):
        return OUT_OF_MEMORY.format(first or "none is left")
    return _no_device(error) if jax else None


def _no_device(error: BaseException) -> str | None:
    """Return one line if the error is JAX's because it has no device to run on, else None."""
    modules = {frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)}
    shortened = getattr(error, "__notes__", None)  # JAX has removed its frames
    if not (shortened or any(name.startswith("jax.") for name in modules)):
        return None  # a bug; starting the devices takes seconds
    from jax_transformer.parallel import check_devices

    try:
        check_devices()
    except InputError as found:
        return str(found)
    return None


def _discard_output() -> None:
    """Redirect standard output to /dev/null, or Python would report an error at exit."""
    with contextlib.suppress(OSError):  # a stream of a notebook or a test has no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
