"""The flags that doors share, and how a door opens: one clear line for every mistake."""

import contextlib
import dataclasses
import errno
import io
import logging
import os
import signal
import stat
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from absl import flags
from tqdm import tqdm

import experiments
from experiments.configs import EXPERIMENTS, find_experiment
from jax_transformer.config import Config, DecodingConfig, override, settings
from jax_transformer.data.text import listed_paths
from jax_transformer.data.wmt import DATASETS, default_data_dir
from jax_transformer.errors import InputError
from jax_transformer.runs.run_dir import Run, RunFolder

FLAGS = flags.FLAGS

TREE_FLAGS = ["train_trees", "dev_trees", "test_trees"]
FILE_FLAGS = [
    f"{split}_{side}" for split in ("train", "dev", "test") for side in ("source", "target")
]


def define_workdir(required: bool = True) -> None:
    """--workdir: the run folder."""
    default = "" if required else " (default: runs/EXPERIMENT)"
    flags.DEFINE_string("workdir", None, f"The run folder{default}.")


def define_checkpoint() -> None:
    """--checkpoint: which parameters of the run."""
    flags.DEFINE_string(
        "checkpoint", None, "averaged, last or the step of one (default: averaged if it is there)."
    )


def define_search() -> None:
    """How to search, where not as the run says."""
    flags.DEFINE_integer("beam_size", None, "Hypotheses kept; 1 is greedy.", lower_bound=1)
    flags.DEFINE_float("alpha", None, "Exponent of the length penalty.", lower_bound=0.0)
    flags.DEFINE_float(
        "patience",
        None,
        "1 leaves a sentence when as many outputs as the beam is wide have ended, which is faster; "
        "0 goes on until nothing can change the answer.",
        lower_bound=0.0,
    )


def asked_decoding(config: Config, *names: str) -> DecodingConfig:
    """The run's own, with what these flags and those of `define_search` say.

    Raises InputError where a value is out of its setting's range, as infinity is.
    """
    given = {name: FLAGS[name].value for name in ("beam_size", "alpha", "patience", *names)}
    asked = {name: value for name, value in given.items() if value is not None}
    decoding = dataclasses.replace(config.decoding, **asked)
    return dataclasses.replace(config, decoding=decoding).decoding


def define_run() -> None:
    """The flags that say what to train, and on what."""
    names = "\n".join(f"{name}: {e.purpose}" for name, e in EXPERIMENTS.items())
    flags.DEFINE_string("experiment", None, f"What to train (default: demo).\n{names}")
    # JAX's keys are made of 32 bits: a larger seed would be the same as a smaller one.
    meaning = "Seed of parameters, dropout and data order."
    flags.DEFINE_integer("seed", 1, meaning, lower_bound=0, upper_bound=2**32 - 1)
    flags.DEFINE_multi_string(
        "set",
        [],
        "Change a setting, as in --set model.d_k=16; repeat it for several. The settings, with "
        "the values of the paper's base model; an experiment changes some of them, and a run's are "
        f"in its config.json:\n{_all_settings()}",
    )
    for name in FILE_FLAGS:
        split, side = name.split("_")
        flags.DEFINE_string(
            name,
            None,
            f"Text of {split}, {side} side: a sentence a line, plain, .gz or .xz; several files "
            "with commas between them.",
        )
    for name in [*TREE_FLAGS, "extra_trees"]:
        what = {"extra": "more trees to train on, such as a parser's: data.extra_share of all"}
        flags.DEFINE_string(
            name,
            None,
            f"Penn bracketings, {what.get(name[:5], f'to parse: {name[:-6]}')}; files or folders, "
            "plain, .gz or .xz, several with commas between them.",
        )
    flags.DEFINE_string(
        "treebank_dir", None, "The Penn Treebank, LDC's folders 02 to 23 of .mrg files."
    )
    flags.DEFINE_string(
        "data_dir",
        None,
        "Where tensorflow-datasets keeps WMT (default: $TFDS_DATA_DIR or ~/tensorflow_datasets).",
    )


def _all_settings() -> str:
    return "\n".join(
        f"{name}={value}: {part.metadata['meaning']}" for name, value, part in settings(Config())
    )


def run_folder() -> RunFolder:
    """The folder that --workdir names. InputError where it is not given."""
    if not FLAGS.workdir:
        raise InputError("--workdir: expected the folder of a run of experiments.train, found none")
    return RunFolder(FLAGS.workdir)


def in_the_way(path: Path) -> str | None:
    """What keeps a new file or folder of this absolute path from being written."""
    above = next(parent for parent in path.parents if parent.exists())
    if not above.is_dir():
        return f"a file in its path, {above}"
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above}, where nothing may be written"


def asked_run(asked: str | None = None, folder: RunFolder | None = None) -> tuple[Run, RunFolder]:
    """What the flags ask for; what they leave open is taken from the folder, if it has a run.

    asked, folder: stand for --experiment and --workdir where those are not given.
    """
    asked = FLAGS.experiment or asked
    experiment = asked or "demo"
    find_experiment(experiment)
    if FLAGS.workdir or folder is None:
        folder = RunFolder(FLAGS.workdir or os.path.join("runs", experiment))
    there = None if asked else folder.read_run()
    config = there.config if there else find_experiment(experiment).config()
    config = override(config, *FLAGS.set)
    text, trees = _files(), _trees(experiment)
    if text and trees:
        raise InputError(
            f"--{next(iter(trees))}: expected trees or text, found --{next(iter(text))} too; leave "
            "one of them out"
        )
    files = text or trees or (there.files if there else {})
    if not files and folder.read_run() is not None:
        files = folder.need_run().files
    seed = FLAGS.seed if FLAGS["seed"].present or there is None else there.seed
    experiment = there.experiment if there else experiment
    known = find_experiment(experiment)
    files = _data_dir(experiment, files)
    return Run(experiment, seed, config, files, known.corpus, known.scored_on), folder


def _data_dir(experiment: str, files: dict[str, str]) -> dict[str, str]:
    """`files`, or the folder with prepared data in their place where the experiment has such."""
    if "train_source" in files or find_experiment(experiment).corpus not in DATASETS:
        if FLAGS.data_dir:
            raise InputError(
                f"--data_dir={FLAGS.data_dir}: expected an experiment that reads prepared data, "
                f"found {experiment} on other text; leave the flag out"
            )
        return files
    data_dir = FLAGS.data_dir or files.get("data_dir") or default_data_dir()
    if os.path.isfile(data_dir):
        raise InputError(f"--data_dir={data_dir}: expected a folder, found a file; name another")
    return {"data_dir": os.path.abspath(data_dir)}


def _trees(experiment: str) -> dict[str, str]:
    """The treebanks that flags name, under the names of the flags."""
    names = [*TREE_FLAGS, "extra_trees", "treebank_dir"]
    given = {name: str(FLAGS[name].value) for name in names if FLAGS[name].value}
    if not given:
        return {}
    corpus = find_experiment(experiment).corpus
    if corpus not in ("wsj", "treebank", "demo-trees"):
        raise InputError(
            f"--{next(iter(given))}: expected an experiment that parses, found {experiment}; give "
            "--experiment=treebank, treebank-small, wsj or wsj-semi"
        )
    own = "treebank_dir" not in given
    needed = ["train_trees", "dev_trees"] if own else []
    missing = [f"--{name}" for name in needed if name not in given]
    if missing:
        raise InputError(f"own trees: expected also {' and '.join(missing)}, found none; give it")
    spare = [f"--{name}" for name in TREE_FLAGS if name in given and not own]
    if spare:
        raise InputError(
            f"--treebank_dir: expected it to give train, dev and test, found also "
            f"{' and '.join(spare)}; leave one of them out"
        )
    return {
        name: ",".join(map(os.path.abspath, listed_paths(value))) for name, value in given.items()
    }


def _files() -> dict[str, str]:
    given = {name: str(FLAGS[name].value) for name in FILE_FLAGS if FLAGS[name].value}
    if not given:
        return {}
    for name, value in given.items():
        for path in listed_paths(value):
            if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
                raise InputError(
                    f"--{name}: expected a file, found a pipe or a device, {path}; text is read "
                    "more than once, so write it into a file first"
                )
    needed = FILE_FLAGS[:4] + [n for n in FILE_FLAGS[4:] if any(g[:4] == "test" for g in given)]
    missing = [f"--{name}" for name in needed if name not in given]
    if missing:
        raise InputError(f"own text: expected also {' and '.join(missing)}, found none; give it")
    return {
        name: ",".join(map(os.path.abspath, listed_paths(value))) for name, value in given.items()
    }


def open_door(
    define_flags: Callable[[], None],
    main: Callable[..., int | None],
    description: str | None,
    arguments: Sequence[str] = (),
) -> None:
    """Define and parse the flags, run `main`, and leave.

    arguments: names of what has to be given beside flags, in order; `main` is called with it.
    The exit status is what `main` returns, or 2 after one line on what the user can mend.
    """
    if signal.getsignal(signal.SIGINT) is experiments.leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # What libraries warn of is nothing a user can mend.
    warnings.filterwarnings("ignore", module="(?!experiments|jax_transformer|__main__)")
    _mend_streams()
    logging.getLogger("jax_transformer").setLevel(logging.INFO)
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter())
    logging.root.addHandler(handler)
    define_flags()
    try:
        if any(argument in ("--help", "-h", "-help", "--helpfull") for argument in sys.argv[1:]):
            print(_help(description or ""), flush=True)
            sys.exit(0)
        FLAGS.set_gnu_getopt(True)  # flags may stand behind arguments too
        rest = FLAGS(sys.argv)[1:]
        if len(rest) != len(arguments):
            expected = " ".join(arguments) + " beside flags" if arguments else "only flags"
            found = repr(" ".join(rest)) if rest else "none"
            raise InputError(f"expected {expected}, found {found}; see --help")
        sys.exit(main(*rest) or 0)
    except flags.Error as error:
        said = " ".join(str(error).split())
        for type_error, expected in _NO_NUMBER.items():
            said = said.replace(type_error, f"expected {expected}, found ")
        complain(f"{said} (--help lists every flag)")
    except InputError as error:
        complain(str(error))
    except BrokenPipeError:
        # The reader has left; nothing is wrong, but Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        complain("interrupted", code=130)
    except OSError as error:
        full = "; free some space and give the same command again" * (error.errno == errno.ENOSPC)
        path = error.filename or _place_of_a_failed_write()
        where = f"{path}: " if path and path not in str(error.strerror) else ""
        complain(f"{where}{error.strerror or error}{full}")
    except MemoryError as error:
        complain(_OUT_OF_MEMORY.format(error or "no more to be had"))
    except Exception as error:
        # By its name: most doors have not loaded JAX.
        if type(error).__name__ != "JaxRuntimeError" or "RESOURCE_EXHAUSTED" not in str(error):
            raise
        complain(_OUT_OF_MEMORY.format(str(error).splitlines()[0]))


# What Python says of a text that is no number.
_NO_NUMBER = {
    "invalid literal for int() with base 10: ": "a whole number",
    "could not convert string to float: ": "a number",
}

_OUT_OF_MEMORY = (
    "memory ran out: {}; in training lower training.batch_tokens or raise training.accumulate, in "
    "decoding lower the beam or decoding.batch_tokens, or take a smaller model"
)


class _Formatter(logging.Formatter):
    """The message alone for what is in order, with its level before it where something is wrong."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as one line, over a progress bar where there is one."""
        over = "\r\x1b[K" if sys.stderr.isatty() else ""
        level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return f"{over}{level}{super().format(record)}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Cells as lines of text: the first and last column to the left, numbers between to the right.

    A row of a single cell is a heading.
    """
    whole = [row for row in rows if len(row) > 1]
    widths = [max(len(row[i]) for row in whole) for i in range(len(whole[0]) - 1)]
    lines = []
    for first, *rest in rows:
        numbers = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=False)]
        line = "  ".join([first.ljust(widths[0]), *numbers, *rest[len(numbers) :]])
        lines.append(line.rstrip())
    return "\n".join(lines)


def _mend_streams() -> None:
    """Standard streams that are closed, or that write another encoding than all our files have."""
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            # What is opened next would get its number, and what is written to it.
            mode = "r" if number == 0 else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
            if name == "stdout":
                sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
                complain("expected a standard output to write to, found it closed; open it")
        elif number and isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _place_of_a_failed_write() -> str | None:
    """A failed write does not know its file: the run folder's, or standard output."""
    places = [FLAGS["workdir"].value] if "workdir" in FLAGS else []
    with contextlib.suppress(OSError):  # where standard output is no stream of the system's
        mode = os.fstat(sys.stdout.fileno()).st_mode
        if stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not sys.stdout.isatty()):  # can be full
            places.append("standard output")
    return " or ".join(filter(None, places))


def complain(message: str, code: int = 2) -> None:
    """One line on standard error, and leave."""
    try:
        sys.stdout.flush()
    except OSError:
        # Nothing more can be written there, and Python would try once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    print(f"error: {' '.join(message.split(chr(10)))}", file=sys.stderr, flush=True)
    # Past this line nothing is left to save; threads of libraries must not hold us up.
    sys.exit(code)


def say(line: str) -> None:
    """One line on standard output, above the progress bar if there is one."""
    tqdm.write(line, file=sys.stdout)
    sys.stdout.flush()


def warn(message: str) -> None:
    """One line on standard error."""
    tqdm.write(f"warning: {message}", file=sys.stderr)  # above the progress bar if there is one
    sys.stderr.flush()


def _help(description: str) -> str:
    # Ours are defined in this module and in the door; absl's own are left out.
    ours = {__name__, "__main__"}
    lines = [description.strip(), "", "Flags:"]
    for module, defined in FLAGS.flags_by_module_dict().items():
        if module not in ours and module != sys.argv[0]:
            continue
        for flag in defined:
            meaning = str(flag.help).split(";\n    repeat this option")[0]  # absl says that
            first, *listed = [line.strip() for line in meaning.splitlines()]
            if flag.default not in (None, []):
                first += f" (default: {flag.default})"
            paragraphs = [f"  --{flag.name}: {first}", *(f"        {line}" for line in listed)]
            for text in paragraphs:
                by = " " * (len(text) - len(text.lstrip()) + 4)
                lines += textwrap.wrap(text, 90, subsequent_indent=by)
    return "\n".join(lines)
