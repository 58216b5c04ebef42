"""Errors and warnings as one line: what is wrong, and how to mend it."""

import contextlib
import difflib
import errno
import logging
import re
import reprlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


class InputError(ValueError):
    """An input that cannot be used.

    The message is one line: what was expected, what was found, where (file and line, or setting)
    and what to do about it. The commands in experiments/ print it without a traceback and exit
    with status 2.
    """


@cache
def warn_once(logger: logging.Logger, message: str) -> None:
    """Log a warning, unless this process has logged the same one before."""
    logger.warning("%s", message)


# The last part of a setting's name, or an option -> the names that other programs have for it.
THEIRS = {
    "steps": "max_steps max_update train_steps",
    "learning_rate": "lr",
    "accumulate": "update_freq gradient_accumulation_steps accum_count",
    "warmup_steps": "warmup warmup_updates",
    "checkpoint_steps": "save_steps save_interval save_freq",
    "evaluate_steps": "eval_steps valid_steps valid_freq validate_interval",
    "log_steps": "logging_steps log_interval report_every",
    "d_model": "hidden_size hidden_dim embed_dim emb_size dim_emb",
    "d_ff": "ffn_dim dim_feedforward filter_size transformer_ff",
    "num_layers": "layers encoder_layers enc_layers enc_depth",
    "decoder_layers": "dec_layers dec_depth num_decoder_layers",
    "num_heads": "heads nhead attention_heads",
    "dropout_rate": "dropout",
    "beam_size": "beam num_beams",
    "batch_tokens": "batch_size",
    "max_extra_length": "max_length max_new_tokens max_decoding_length max_output_length",
    "min_length": "min_decoding_length min_new_tokens",
    "stop_after": "early_stopping early_stopping_patience",
    "alpha": "lenpen length_penalty normalize",
    "lines": "text texts q input inputs sentence sentences source sources src prompt",
    "n_best": "nbest num_return_sequences num_hypotheses alternatives",
    "prefixes": "prefix target_prefix",
    "without": "bad_words bad_words_ids suppress_sequences",
    "no_repeat_ngram": "no_repeat_ngram_size",
    "samples": "do_sample num_samples sampling",
    "temperature": "sampling_temperature",
    "top_k": "sampling_topk",
    "top_p": "sampling_topp",
    "token_scores": "logprobs log_probs",
    "source_language": "source_lang src_lang",
    "target_language": "target_lang tgt_lang",
    "vocabulary_size": "vocab_size",
}
_OF_DISKS = errno.ENOSPC, errno.EDQUOT, errno.EIO
_MOST_NAMES = 80  # that a message lists
OURS = {name: ours for ours, names in THEIRS.items() for name in names.split()}


@contextlib.contextmanager
def located(path: str | Path) -> Iterator[None]:
    """Let each InputError of the block begin with the path."""
    try:
        yield
    except InputError as error:
        if str(error).startswith(str(path)):
            raise
        raise InputError(f"{path}: {error}") from None


@contextlib.contextmanager
def damage_named(path: str | Path, expected: str, remedy: str = "fetch it again") -> Iterator[None]:
    """Raise InputError for each exception of a block that reads a file, missing or damaged.

    Libraries raise a dozen kinds for damaged files, MemoryError and SyntaxError too. Other errors
    of the system, such as a disk that fails or is full, are left.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        named = getattr(error, "filename", None) and not isinstance(error, FileNotFoundError)
        if named or (isinstance(error, OSError) and error.errno in _OF_DISKS):
            raise
        found = " ".join(f"{error}".split()) or type(error).__name__
        raise InputError(
            f"{path}: expected {expected}, found another or a damaged file: {found:.200}; {remedy}"
        ) from None


def reason_of(error: Exception) -> str:
    """Return the kind and the message of another library's error, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def shown(value: object) -> str:
    """Return a value that was read as a short text for a message, on one line."""
    return re.sub(r"\s*\n\s*", " ", _SHORT.repr(value))  # arrays have lines


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean X?` for the known names that are meant, else the known names.

    These have the name in another program, or the same name in another section, or begin with it,
    or need the fewest edits.

    >>> did_you_mean("wmt14", ["wmt14-en-de", "demo"]), did_you_mean("d_modle", ["model.d_model"])
    ('; did you mean wmt14-en-de?', '; did you mean model.d_model?')
    """
    known = sorted(known)
    leaves = {candidate: candidate.rpartition(".")[2] for candidate in known}
    leaves = {candidate: leaf for candidate, leaf in leaves.items() if not leaf.isdecimal()}
    leaf = name.rpartition(".")[2]
    leaf = leaf if leaf in leaves.values() else OURS.get(leaf, leaf)
    nearest = difflib.get_close_matches(leaf, leaves.values(), n=1)
    meant = (
        [candidate for candidate in leaves if leaves[candidate] == leaf]
        or [candidate for candidate in known if name and candidate.startswith(name)]
        or difflib.get_close_matches(name, known, n=1)
        or [candidate for candidate in leaves if leaves[candidate] in nearest]
    )
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    more = f" and {len(known) - 10:,} more" if len(known) > _MOST_NAMES else ""
    return f"; known: {', '.join(known[:10] if more else known)}{more}"


def install_command(extra: str) -> str:
    """Return how to install an extra; a project on PyPI that has our name is another program.

    >>> install_command("serve")
    "python -m pip install 'PATH[serve]', where PATH is the checkout or the wheel"
    """
    return f"python -m pip install 'PATH[{extra}]', where PATH is the checkout or the wheel"


def expect_a(kind: type, **arguments: object) -> None:
    """Raise InputError unless every argument is a `kind`; suggest an attribute that is one."""
    for name, value in arguments.items():
        if not isinstance(value, kind):
            parts = vars(value).items() if hasattr(value, "__dict__") else ()
            give = [f"; give {name}.{part}" for part, found in parts if isinstance(found, kind)]
            raise InputError(
                f"{name}: expected a {kind.__name__}, found a {type(value).__name__}"
                + "".join(give[:1])
            )
