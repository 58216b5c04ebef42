"""All settings of an experiment as frozen dataclasses (§3, §5, §6; the columns of Table 3).

    config = Config()                                   # the paper's base model
    config = override(config, "model.d_k=16")           # Table 3, row (B)

Types and ranges are checked here, once, and in no other file.
"""

import contextlib
import dataclasses
import difflib
import math
import operator
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from jax_transformer.errors import InputError, did_you_mean, expect_a

HEAD_WIDTHS = ("d_k", "d_v")
_FOLLOWS = "; d_model / h unless given"

# Settings that may change after training: those of the search, and of scoring.
FREE_SETTINGS = ("decoding.", "data.bleu_", "data.source_language", "data.target_language")
END_SETTINGS = ("training.steps", "training.stop_after")  # may change when a run continues

_HEAVIEST = 1_000_000  # weight of a corpus


Value = bool | int | float | str  # of a setting


def setting(
    default: Value | None,
    meaning: str,
    at_least: float | None = None,
    above: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> Any:
    """Return a dataclass field with a meaning and a range.

    Without an upper limit, a float must be finite and an int must fit in 32 bits.
    """
    if isinstance(default, float) and below is None and at_most is None:
        below = math.inf
    if (default is None or type(default) is int) and at_most is None:
        at_most = 2**31 - 1
    limits = {"at_least": at_least, "above": above, "below": below, "at_most": at_most}
    return field(default=default, metadata={"meaning": meaning, **limits})


def _check_type(name: str, value: object, kind: object) -> None:
    hint = ""
    if kind is bool:
        fits, expected = isinstance(value, bool), "true or false"
    elif kind is int:
        fits, expected = type(value) is int, "a whole number"
    elif kind is str:
        fits, expected = type(value) is str, "a text"
    elif kind is float:
        fits, expected = type(value) in (int, float), "a number"
    else:
        choices = typing.get_args(kind)
        fits, expected = value in choices, f"one of {', '.join(choices)}"
        if difflib.get_close_matches(str(value), choices):
            hint = did_you_mean(str(value), choices)
    if not fits:
        raise InputError(f"{name}={value}: expected {expected}{hint or f', found {value!r}'}")


def _check_range(name: str, value: Any, limits: Mapping[str, Any]) -> None:
    bounds = [
        ("at least", limits["at_least"], operator.ge),
        ("above", limits["above"], operator.gt),
        ("below", limits["below"], operator.lt),
        ("at most", limits["at_most"], operator.le),
    ]
    bounds = [(words, limit, holds) for words, limit, holds in bounds if limit is not None]
    # Written so that NaN, which compares false with everything, is out of every range.
    if not all(holds(value, limit) for _, limit, holds in bounds):
        expected = " and ".join(f"{words} {limit:,}" for words, limit, _ in bounds)
        raise InputError(f"{name}={value}: expected a value {expected}")


def _check_model_agreement(model: "ModelConfig") -> None:
    """Raise InputError if settings of the model contradict each other."""
    if model.positions == "sinusoidal" and model.d_model % 2:
        raise InputError(
            f"model.d_model={model.d_model}: sine and cosine come in pairs, so expected an even "
            "number with model.positions=sinusoidal; set model.d_model to one, or "
            "model.positions=learned"
        )
    if model.fused_attention and (
        model.compute_dtype != "bfloat16"
        or model.attention_dropout_rate > 0
        or model.d_k != model.d_v
    ):
        raise InputError(
            "model.fused_attention=true: expected model.compute_dtype=bfloat16, "
            "model.attention_dropout_rate=0 and model.d_v equal to model.d_k, found "
            f"{model.compute_dtype}, {model.attention_dropout_rate:g}, {model.d_v} and "
            f"{model.d_k}; set these, or model.fused_attention=false"
        )


class _Section:
    """A group of settings, which are checked when it is made."""

    def __post_init__(self) -> None:
        """Raise InputError if a setting has the wrong type or is out of its range."""
        section = type(self).__name__.removesuffix("Config").lower()
        for part in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            name, value = f"{section}.{part.name}", getattr(self, part.name)
            if value is None and part.default is None:
                continue  # it is computed from others later
            _check_type(name, value, part.type)
            _check_range(name, value, part.metadata)


@dataclass(frozen=True)
class ModelConfig(_Section):
    """The architecture (§3). Defaults: the paper's base model.

    d_k and d_v are d_model / h unless given. `override` lets them follow it, `dataclasses.replace`
    does not. Raises InputError if d_model / h is needed and is not a whole number, and, as the
    other sections do, if a setting has the wrong type or is out of its range.

    >>> base = ModelConfig()
    >>> base.num_layers, base.d_model, base.d_ff, base.num_heads, base.d_k, base.dropout_rate
    (6, 512, 2048, 8, 64, 0.1)
    >>> ModelConfig(d_model=64).d_k, ModelConfig(d_model=64, d_k=16).d_k
    (8, 16)
    """

    num_layers: int = setting(6, "N, layers in the encoder and in the decoder", at_least=1)
    decoder_layers: int = setting(
        0, "layers in the decoder if they are not N; 0 is N (the paper)", at_least=0
    )
    d_model: int = setting(512, "width of embeddings and of every sub-layer's output", at_least=2)
    d_ff: int = setting(2048, "inner width of the feed-forward networks", at_least=1)
    activation: Literal["relu", "swish", "gelu"] = setting(
        "relu", "activation in the feed-forward networks (the paper: relu)"
    )
    num_heads: int = setting(8, "h, attention heads", at_least=1)
    d_k: int = setting(None, f"width of a query and of a key in each head{_FOLLOWS}", at_least=1)
    d_v: int = setting(None, f"width of a value in each head{_FOLLOWS}", at_least=1)
    dropout_rate: float = setting(
        0.1, "P_drop on sub-layer outputs and embedding sums", at_least=0, below=1
    )
    attention_dropout_rate: float = setting(
        0.0, "dropout on attention weights (§6.3 only)", at_least=0, below=1
    )
    attention_bias: bool = setting(False, "biases on W^Q, W^K, W^V, W^O (the paper has none)")
    norm_position: Literal["post", "pre"] = setting(
        "post",
        "LayerNorm after each residual connection (the paper), or on the input of each sub-layer "
        "and after each stack",
    )
    norm_epsilon: float = setting(1e-6, "added to the variance in LayerNorm", above=0)
    positions: Literal["sinusoidal", "learned"] = setting(
        "sinusoidal", "position encodings; learned is Table 3 (E)"
    )
    max_positions: int = setting(1024, "rows of the learned position table", at_least=1)
    attention_radius: int = setting(
        0,
        "positions on either side that self-attention sees (Table 1, restricted: "
        "r = 2 radius + 1); 0 is all",
        at_least=0,
    )
    compute_dtype: Literal["float32", "bfloat16"] = setting(
        "float32",
        "type of activations and of matrix products; parameters, softmax, norm statistics and "
        "loss are float32",
    )
    matmul_precision: Literal["highest", "high", "default"] = setting(
        "highest",
        "precision of matrix products in float32: highest is float32 on every device, high is "
        "faster and coarser (TF32 on a GPU, three bfloat16 passes on a TPU), default is the "
        "device's own choice (TF32; one bfloat16 pass)",
    )
    remat: Literal["none", "layers"] = setting(
        "none",
        "what the backward pass recomputes to save memory, besides attention weights; layers: "
        "everything inside each layer, for a third more arithmetic",
    )
    fused_attention: bool = setting(
        False,
        "on an NVIDIA GPU, compute attention in training by cuDNN's kernel; on other devices "
        "commands and load() clear it. Requires compute_dtype bfloat16, d_v equal to d_k and no "
        "attention dropout",
    )
    tie_embeddings: bool = setting(
        True, "one matrix for source, target and pre-softmax (§3.4); in parsing for the last two"
    )
    tie_source: bool = setting(
        True, "with tied embeddings of one vocabulary, the source's matrix is the target's too"
    )
    output_bias: bool = setting(False, "a bias on the logits (the paper has none)")

    @property
    def num_decoder_layers(self) -> int:
        """Layers in the decoder."""
        return self.decoder_layers or self.num_layers

    def __post_init__(self) -> None:
        """Set widths that are not given; raise InputError if settings contradict each other."""
        super().__post_init__()
        for name in [name for name in HEAD_WIDTHS if getattr(self, name) is None]:
            if self.d_model % self.num_heads:
                raise InputError(
                    f"model.d_model={self.d_model}: expected a multiple of model.num_heads="
                    f"{self.num_heads}, because heads are d_model / h wide; change one of them, or "
                    "set model.d_k and model.d_v"
                )
            object.__setattr__(self, name, self.d_model // self.num_heads)
        _check_model_agreement(self)


@dataclass(frozen=True)
class TrainingConfig(_Section):
    """The training of the parameters (§5). Defaults: the paper's base model.

    >>> base = TrainingConfig()
    >>> base.steps, base.batch_tokens, base.warmup_steps, base.adam_b2, base.label_smoothing
    (100000, 25000, 4000, 0.98, 0.1)
    """

    steps: int = setting(100_000, "optimizer steps", at_least=1)
    batch_tokens: int = setting(
        25_000,
        "maximum number of source tokens, and of target tokens, in a batch over all devices",
        at_least=1,
    )
    accumulate: int = setting(
        1, "parts of a batch, computed one after another to save memory", at_least=1
    )
    warmup_steps: int = setting(4000, "steps of linear warm-up", at_least=1)
    learning_rate_scale: float = setting(1.0, "factor on the paper's learning rate", above=0)
    learning_rate: float = setting(
        0.0,
        "a constant learning rate after the warm-up, to continue from a model; 0: the paper's",
        at_least=0,
    )
    freeze: str = setting(
        "",
        "parameters that are not trained: the beginnings of their names, with commas between, as "
        "in embedding,encoder",
    )
    adam_b1: float = setting(0.9, "Adam's beta_1", at_least=0, below=1)
    adam_b2: float = setting(0.98, "Adam's beta_2", at_least=0, below=1)
    adam_epsilon: float = setting(1e-9, "Adam's epsilon", above=0)
    label_smoothing: float = setting(
        0.1, "epsilon_ls, mass taken off the right token", at_least=0, below=1
    )
    checkpoint_steps: int = setting(1500, "steps between checkpoints", at_least=1)
    checkpoint_minutes: float = setting(
        0.0, "minutes between checkpoints instead; 0 is checkpoint_steps", at_least=0
    )
    keep_checkpoints: int = setting(20, "checkpoints kept in the run folder", at_least=1)
    average_last: int = setting(5, "checkpoints averaged into the final model", at_least=1)
    evaluate_steps: int = setting(1000, "steps between dev loss and greedy dev BLEU", at_least=1)
    evaluate_average: bool = setting(
        False, "evaluate the mean of the last average_last checkpoints, not the last parameters"
    )
    keep_best: Literal["none", "bleu", "chrf", "loss", "f1"] = setting(
        "none",
        "keep the checkpoint that is best on dev, the first of equal ones; evaluated steps are "
        "saved then, and the final model is the mean of the average_last checkpoints up to it",
    )
    stop_after: int = setting(
        0, "end training after so many evaluations without a better one; 0: never", at_least=0
    )
    log_steps: int = setting(50, "steps between lines of metrics", at_least=1)


@dataclass(frozen=True)
class DecodingConfig(_Section):
    """The search for the outputs of a trained model (§6.1).

    >>> DecodingConfig(beam_size=1).alpha, DecodingConfig().beam_size
    (0.6, 4)
    """

    beam_size: int = setting(4, "hypotheses kept; 1 is greedy search", at_least=1, at_most=10_000)
    alpha: float = setting(0.6, "exponent of the length penalty", at_least=0, at_most=10)
    length_penalty: Literal["gnmt", "length"] = setting(
        "gnmt",
        "what log P is divided by: ((5 + |y|) / 6)^alpha (Wu et al. 2016), or |y|^alpha (Marian, "
        "fairseq)",
    )
    patience: float = setting(
        0.0,
        "the search of a sentence ends when patience x beam_size outputs have ended (Kasai et al. "
        "2022), which they do only among the beam_size best candidates of a step; 1 is the rule of "
        "many tools; 0 searches until nothing can change the answer",
        at_least=0,
        at_most=1000,
    )
    narrowing: bool = setting(
        False,
        "with patience 1, each output of a sentence that has ended makes its beam narrower by one, "
        "as in Marian",
    )
    max_extra_length: int = setting(
        50,
        "maximum number of tokens that a translation has beyond those of its source",
        at_least=1,
        at_most=1_000_000,
    )
    batch_tokens: int = setting(4096, "source tokens decoded together", at_least=1)


@dataclass(frozen=True)
class DataConfig(_Section):
    """The preparation of text (§5.1), and the scoring of translations."""

    task: Literal["translation", "parsing"] = setting(
        "translation", "parsing (§6.3) writes the labels of a tree over the source's words"
    )
    word_positions: bool = setting(
        False,
        "in parsing, half of the width of position encodings gives the number of the word (not in "
        "the paper)",
    )
    vocabularies: Literal["shared", "separate"] = setting(
        "shared", "one vocabulary for both languages, or one for each; files given by flags decide"
    )
    vocabulary_size: int = setting(
        37_000,
        "pieces of a learned BPE vocabulary; in parsing of the words alone",
        at_least=5,
    )
    vocabulary_up_to: bool = setting(False, "take fewer pieces if the text does not support all")
    vocabulary_sample: int = setting(
        1_000_000,
        "lines sampled from both sides to learn the vocabulary from; of each side if separate",
        at_least=1,
    )
    lowercase: bool = setting(
        False, "a learned vocabulary reads all text in lower case, so translations are too"
    )
    nfkc: bool = setting(
        False, "a learned vocabulary reads all text in Unicode's NFKC form: the ligature fi as f, i"
    )
    subword_dropout: float = setting(
        0.0,
        "cut the training text anew in each epoch, passing over each merge of BPE with this "
        "probability; of a unigram vocabulary the exponent alpha, lower is more random; 0: do not",
        at_least=0,
        at_most=1,
    )
    max_length: int = setting(
        256,
        "longest sentence trained on, in tokens with the end mark",
        at_least=2,
        at_most=1_000_000,
    )
    max_length_ratio: float = setting(
        0.0,
        "drop pairs whose longer side has more than this times the other's tokens; 0: drop none",
        at_least=0,
    )
    # A setting instead of a part of --train_source, because whatever could stand between a path and
    # its weight may be in a path, or is a sign of the shell or of an address: , : = @ *
    train_weights: str = setting(
        "",
        "weights of the corpora to train on, as in 3,1 after two --train_source: their parts of an "
        "epoch's pairs are 3/4 and 1/4; empty: each pair once",
    )
    extra_share: float = setting(
        0.5, "share of the trees trained on that --extra_trees gives", at_least=0, below=1
    )
    unescape_html: bool = setting(False, "read &amp; and other HTML entities as characters")
    buckets: int = setting(23, "maximum number of batch shapes, each compiled once", at_least=1)
    packing: bool = setting(
        False,
        "in training a row holds several pairs, each as if alone: usually over 95% of all tokens "
        "are real, in a few shapes; the cost of attention grows with the length of a row",
    )
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"] = setting(
        "13a", "sacreBLEU's tokenizer; none for text that has been tokenized"
    )
    bleu_lowercase: bool = setting(False, "score without regard to case")
    source_language: str = setting(
        "en", "code of the language translated from, such as fi or zh; empty: unknown"
    )
    target_language: str = setting(
        "de", "code of the language translated into; the paper's BLEU counts its Moses tokens"
    )

    def __post_init__(self) -> None:
        """Raise InputError for weights or languages of another form, and as other sections do."""
        super().__post_init__()
        # Written so that NaN is refused too.
        if not all(type(one) is float and 0 < one <= _HEAVIEST for one in self.weights):
            raise InputError(
                f"data.train_weights={self.train_weights}: expected numbers above 0 and at most "
                f"{_HEAVIEST:,} with commas between, as in 3,1"
            )
        for side in ("source_language", "target_language"):
            code = getattr(self, side)
            if not code.isprintable() or len(code) > 100:
                raise InputError(
                    f"data.{side}={code[:100]!r}: expected a code such as en or zh-Hant, or "
                    "nothing if it is not known"
                )

    @property
    def languages(self) -> str:
        """The languages as `en to de`; empty if neither is known."""
        pair = self.source_language, self.target_language
        return " to ".join(code or "unknown" for code in pair) if any(pair) else ""

    @property
    def weights(self) -> list[float]:
        """The weight of each corpus; empty if none are given."""
        return [_parse(text, float) for text in self.train_weights.split(",") if self.train_weights]


@dataclass(frozen=True)
class Config:
    """All settings of one experiment.

    >>> Config(model=ModelConfig(num_layers=2)).model.num_layers
    2
    >>> ModelConfig(dropout_rate=1.5)
    Traceback (most recent call last):
        ...
    jax_transformer.errors.InputError: model.dropout_rate=1.5: ... at least 0 and below 1
    """

    model: ModelConfig = ModelConfig()
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    data: DataConfig = DataConfig()

    def __post_init__(self) -> None:
        """Raise InputError for a section of another kind, or settings that contradict others."""
        for section in dataclasses.fields(self):
            expect_a(type(section.default), **{section.name: getattr(self, section.name)})
        _check_agreement(self)


def settings(config: Config) -> list[tuple[str, Value, dataclasses.Field]]:
    """Return (dotted name, value, dataclass field) of every setting, in order of declaration."""
    return [
        (f"{section.name}.{part.name}", getattr(getattr(config, section.name), part.name), part)
        for section in dataclasses.fields(config)
        for part in dataclasses.fields(getattr(config, section.name))
    ]


def override(config: Config, *assignments: str) -> Config:
    """Return the config with settings changed, e.g. `override(config, "model.d_k=16")`.

    Settings are checked against each other after all assignments. A d_k or d_v that was
    d_model / h follows d_model and num_heads, unless it is among the assignments.

    Raises InputError for an unknown name (with the nearest known one), a value of the wrong type,
    a value out of range, or settings that contradict each other.

    >>> override(Config(), "model.d_k=16").model.d_k
    16
    >>> override(Config(), "model.d_model=256").model.d_k
    32
    >>> override(Config(), "model.d_modle=16")
    Traceback (most recent call last):
        ...
    jax_transformer.errors.InputError: ... did you mean model.d_model?
    """
    expect_a(Config, config=config)
    known = {dotted: part for dotted, _, part in settings(config)}
    model, changes = config.model, {"model": {}}
    for width in HEAD_WIDTHS:
        if getattr(model, width) * model.num_heads == model.d_model:
            changes["model"][width] = None
    expect_a(str, **{f"setting {n}": text for n, text in enumerate(assignments, start=1)})
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(
                f"--set {assignment}: expected section.name=value, such as model.d_k=16"
            )
        if name not in known:
            raise InputError(
                f"--set {assignment}: no setting is called {name}{did_you_mean(name, known)}"
            )
        section, leaf = name.split(".")
        changes.setdefault(section, {})[leaf] = _parse(text.strip(), known[name].type)
    changed = {
        section: dataclasses.replace(getattr(config, section), **values)
        for section, values in changes.items()
    }
    return dataclasses.replace(config, **changed)


def from_dict(values: Mapping[str, Mapping[str, Any]]) -> Config:
    """Invert `dataclasses.asdict`. Raises InputError for unknown settings.

    A setting that is missing is newer than the values, and takes its default, which is the
    behaviour from before the setting existed.
    """
    ours = {name for name, _, _ in settings(Config())}
    theirs = {f"{section}.{leaf}" for section, leaves in values.items() for leaf in leaves}
    sections = dataclasses.asdict(Config())
    theirs |= values.keys() - sections.keys()
    if not theirs <= ours:
        raise InputError(
            "the settings do not fit this version of the code, unknown: "
            f"{', '.join(sorted(theirs - ours))}; "
            "train anew in another --workdir, or use the version that wrote them"
        )
    sections |= values
    return Config(
        ModelConfig(**sections["model"]),
        TrainingConfig(**sections["training"]),
        DecodingConfig(**sections["decoding"]),
        DataConfig(**sections["data"]),
    )


def differences(ours: Config, theirs: Config) -> list[str]:
    """Return a text `name: ours instead of theirs` for each setting that differs."""
    return [
        f"{name}: {value!r} instead of {other!r}"
        for (name, value, _), (_, other, _) in zip(settings(ours), settings(theirs), strict=True)
        if value != other
    ]


def _parse(text: str, kind: Any) -> Any:
    """Return the text as a value of this type, or the text itself if it does not parse.

    `_check_type` then refuses it.
    """
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind in (int, float) and text.isascii():  # Python reads the digits of every script
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _check_agreement(config: Config) -> None:
    """Raise InputError if settings of several sections contradict each other."""
    model, data, extra = config.model, config.data, config.decoding.max_extra_length
    if data.word_positions and data.task != "parsing":
        raise InputError(
            "data.word_positions=true: only a tree gives the word of each of its labels, so "
            "expected a parsing experiment; set data.word_positions=false"
        )
    if data.word_positions and (model.positions != "sinusoidal" or model.d_model % 4):
        raise InputError(
            "data.word_positions=true: expected model.positions=sinusoidal and a multiple of 4 for "
            f"model.d_model, found {model.positions} and {model.d_model}; change these, or set "
            "data.word_positions=false"
        )
    if data.task == "parsing" and data.subword_dropout:
        raise InputError(
            f"data.subword_dropout={data.subword_dropout:g}: expected an experiment that "
            "translates; set it to 0"
        )
    if data.task == "parsing" and data.vocabularies != "shared":
        raise InputError(
            "data.vocabularies=separate: a parser has a vocabulary of words and labels of trees "
            "anyway, so expected a translation experiment; set data.vocabularies=shared"
        )
    if data.task == "parsing" and extra < 3:
        raise InputError(
            f"decoding.max_extra_length={extra}: a tree has up to three labels more than "
            "words, EOS among them, so expected 3 or more; raise it"
        )
    if 0 < data.max_length_ratio < 1:
        raise InputError(
            f"data.max_length_ratio={data.max_length_ratio}: the longer side over the "
            "shorter one is never below 1, so expected 0, or 1 or more"
        )
    if config.decoding.narrowing and config.decoding.patience != 1:
        raise InputError(
            f"decoding.narrowing=true: expected decoding.patience=1, found "
            f"{config.decoding.patience:g}; set it, or decoding.narrowing=false"
        )
    training = config.training
    of_task = ("f1", "loss") if data.task == "parsing" else ("bleu", "chrf", "loss")
    if training.keep_best not in ("none", *of_task):
        raise InputError(
            f"training.keep_best={training.keep_best}: expected a score that {data.task} has: "
            f"none, {', '.join(of_task)}"
        )
    if training.stop_after and training.keep_best == "none":
        raise InputError(
            f"training.stop_after={training.stop_after}: expected training.keep_best to name the "
            f"score, found none; set it to one of {', '.join(of_task)}"
        )
    longest = data.max_length + extra
    if model.positions == "learned" and model.max_positions < longest:
        # A position beyond the last row of the table would give NaN.
        raise InputError(
            f"model.max_positions={model.max_positions}: expected at least {longest}, "
            "data.max_length + decoding.max_extra_length; raise it, or lower one of those"
        )
