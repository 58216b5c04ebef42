"""All settings of an experiment as frozen dataclasses (§3, §5, §6; the columns of Table 3).

    config = Config()                                   # the paper's base model
    config = override(config, "model.d_k=16")           # Table 3, row (B)

Types, ranges and meanings are declared here, once, and in no other file.
"""

import contextlib
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

from annotated_types import Ge, Gt, Le, Lt, MaxLen

from jax_transformer.declared import Declared, Meaning, Rule, annotations
from jax_transformer.errors import InputError, did_you_mean, expect_a

HEAD_WIDTHS = ("d_k", "d_v")

# Settings that may change after training: those of the search, and of scoring.
FREE_SETTINGS = ("decoding.", "data.bleu_", "data.source_language", "data.target_language")
# Settings that may change when a run continues.
END_SETTINGS = (
    *("training.steps", "training.stop_after"),
    *("training.accumulate", "training.keep_checkpoints"),  # for another memory, another disk
    "model.fused_attention",  # for another device; the function is the same
)

_HEAVIEST = 1_000_000  # weight of a corpus

Value = bool | int | float | str  # of a setting
Count = Annotated[int, Ge(0), Le(2**31 - 1)]
Positive = Annotated[int, Ge(1), Le(2**31 - 1)]
Rate = Annotated[float, Ge(0), Lt(1)]
Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True)
class ModelConfig(Declared):
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

    inside = "model."
    rules = (
        Rule(
            lambda model: model.positions == "sinusoidal" and model.d_model % 2,
            "model.d_model={d_model}: expected an even number with model.positions=sinusoidal, "
            "because sine and cosine come in pairs; make model.d_model even, or set "
            "model.positions=learned",
        ),
        Rule(
            lambda model: model.fused_attention and not model.can_be_fused,
            "model.fused_attention=true: expected model.compute_dtype=bfloat16, "
            "model.attention_dropout_rate=0 and model.d_v equal to model.d_k, a multiple of 8 up "
            "to 128, found {compute_dtype}, {attention_dropout_rate:g}, {d_v} and {d_k}; set "
            "these, or model.fused_attention=false",
        ),
    )

    num_layers: Annotated[Positive, Meaning("N, layers in the encoder and in the decoder")] = 6
    decoder_layers: Annotated[Count, Meaning("layers in the decoder; 0: N, as in the paper")] = 0
    d_model: Annotated[
        Positive, Ge(2), Meaning("width of embeddings and of every sub-layer's output")
    ] = 512
    d_ff: Annotated[Positive, Meaning("inner width of the feed-forward networks")] = 2048
    activation: Annotated[
        Literal["relu", "swish", "gelu"],
        Meaning("activation in the feed-forward networks (the paper: relu)"),
    ] = "relu"
    num_heads: Annotated[Positive, Meaning("h, attention heads")] = 8
    d_k: Annotated[
        Positive, Meaning("width of a query and of a key in each head; d_model / h unless given")
    ] = None  # pyright: ignore
    d_v: Annotated[Positive, Meaning("width of a value in each head; d_model / h unless given")] = (
        None  # pyright: ignore
    )
    dropout_rate: Annotated[Rate, Meaning("P_drop on sub-layer outputs and embedding sums")] = 0.1
    attention_dropout_rate: Annotated[
        Rate, Meaning("dropout on attention weights (in the paper only for parsing, §6.3)")
    ] = 0.0
    attention_bias: Annotated[
        bool, Meaning("biases on W^Q, W^K, W^V, W^O (the paper has none)")
    ] = False
    norm_position: Annotated[
        Literal["post", "pre"],
        Meaning(
            "post: LayerNorm after each residual connection (the paper); pre: on the input of each "
            "sub-layer and after each stack"
        ),
    ] = "post"
    norm_epsilon: Annotated[
        float, Gt(0), Meaning("constant added to the variance in LayerNorm")
    ] = 1e-6
    positions: Annotated[
        Literal["sinusoidal", "learned"], Meaning("position encodings; learned is Table 3 (E)")
    ] = "sinusoidal"
    max_positions: Annotated[Positive, Meaning("rows of the learned position table")] = 1024
    attention_radius: Annotated[
        Count,
        Meaning(
            "positions on either side that self-attention sees (Table 1, restricted: "
            "r = 2 radius + 1); 0: all"
        ),
    ] = 0
    compute_dtype: Annotated[
        Literal["float32", "bfloat16"],
        Meaning(
            "type of activations and of matrix products; parameters, softmax, norm statistics and "
            "loss are float32"
        ),
    ] = "float32"
    matmul_precision: Annotated[
        Literal["highest", "high", "default"],
        Meaning(
            "precision of matrix products in float32: highest is float32 on every device, high is "
            "faster and less precise (TF32 on a GPU, three bfloat16 passes on a TPU), default is "
            "the device's own choice (TF32; one bfloat16 pass)"
        ),
    ] = "highest"
    remat: Annotated[
        Literal["none", "layers"],
        Meaning(
            "values that the backward pass recomputes to save memory, besides attention weights; "
            "layers: everything inside each layer, except the keys and values of decoder layers, "
            "for a third more arithmetic"
        ),
    ] = "none"
    fused_attention: Annotated[
        bool | None,
        Meaning(
            "on an NVIDIA GPU of Ampere's generation or newer, compute attention in training by "
            "cuDNN's kernel; on other devices commands and load() turn it off. Requires "
            "compute_dtype bfloat16, no attention dropout, and d_v equal to d_k, a multiple of 8 "
            "up to 128. Unless given, on for a Hopper GPU (H100, H200) if the settings allow it"
        ),
    ] = None
    tie_embeddings: Annotated[
        bool,
        Meaning(
            "source, target and pre-softmax share a matrix (§3.4); with two vocabularies, "
            "as in parsing, only the last two"
        ),
    ] = True
    tie_source: Annotated[
        bool,
        Meaning("with tie_embeddings and one vocabulary, the source shares the matrix, too"),
    ] = True
    output_bias: Annotated[bool, Meaning("a bias on the logits (the paper has none)")] = False

    @property
    def num_decoder_layers(self) -> int:
        """The number of layers in the decoder."""
        return self.decoder_layers or self.num_layers

    @property
    def can_be_fused(self) -> bool:
        """Whether cuDNN has a kernel for such an attention."""
        plain = self.compute_dtype == "bfloat16" and not self.attention_dropout_rate
        return plain and self.d_k == self.d_v <= 128 and self.d_k % 8 == 0

    def fill(self) -> None:
        """Set the widths of heads that are not given."""
        for name in [name for name in HEAD_WIDTHS if getattr(self, name) is None]:
            if self.d_model % self.num_heads:
                raise InputError(
                    f"model.d_model={self.d_model}: expected a multiple of model.num_heads="
                    f"{self.num_heads}, because heads are d_model / h wide; change one of them, or "
                    "set model.d_k and model.d_v"
                )
            object.__setattr__(self, name, self.d_model // self.num_heads)


@dataclass(frozen=True)
class TrainingConfig(Declared):
    """The training of the parameters (§5). Defaults: the paper's base model.

    >>> base = TrainingConfig()
    >>> base.steps, base.batch_tokens, base.warmup_steps, base.adam_b2, base.label_smoothing
    (100000, 25000, 4000, 0.98, 0.1)
    """

    inside = "training."
    rules = (
        Rule(
            lambda training: training.stop_after and training.keep_best == "none",
            "training.stop_after={stop_after} requires training.keep_best; set it to bleu, chrf or "
            "loss, or for a parser to f1 or loss",
        ),
    )

    steps: Annotated[Positive, Meaning("optimizer steps")] = 100_000
    batch_tokens: Annotated[
        Positive,
        Meaning(
            "maximum number of source tokens, and of target tokens, in a batch on all devices, "
            "padding included; at least one row for each device and part"
        ),
    ] = 25_000
    accumulate: Annotated[
        Positive,
        Meaning(
            "number of parts of a batch of batch_tokens, computed one after another to save memory"
        ),
    ] = 1
    warmup_steps: Annotated[Positive, Meaning("steps of linear warm-up")] = 4000
    learning_rate_scale: Annotated[float, Gt(0), Meaning("factor on the paper's learning rate")] = (
        1.0
    )
    learning_rate: Annotated[
        float,
        Ge(0),
        Meaning(
            "constant learning rate after the warm-up, to continue from a model; 0: the paper's "
            "schedule"
        ),
    ] = 0.0
    freeze: Annotated[
        str,
        Meaning(
            "parameters that are not trained, by the beginnings of their paths, as in "
            "embedding,encoder_0"
        ),
    ] = ""
    adam_b1: Annotated[Rate, Meaning("Adam's beta_1")] = 0.9
    adam_b2: Annotated[Rate, Meaning("Adam's beta_2")] = 0.98
    adam_epsilon: Annotated[float, Gt(0), Meaning("Adam's epsilon")] = 1e-9
    label_smoothing: Annotated[
        Rate, Meaning("epsilon_ls, probability mass taken from the correct token")
    ] = 0.1
    checkpoint_steps: Annotated[Positive, Meaning("steps between checkpoints")] = 1500
    checkpoint_minutes: Annotated[
        float, Ge(0), Meaning("minutes between checkpoints instead; 0: use checkpoint_steps")
    ] = 0.0
    keep_checkpoints: Annotated[Positive, Meaning("checkpoints kept in the run folder")] = 20
    average_last: Annotated[Positive, Meaning("checkpoints averaged into the final model")] = 5
    evaluate_steps: Annotated[
        Positive,
        Meaning("steps between evaluations on dev: loss, and BLEU (or F1) of greedy search"),
    ] = 1000
    evaluate_average: Annotated[
        bool,
        Meaning("evaluate the mean of the last average_last checkpoints, not the last parameters"),
    ] = False
    keep_best: Annotated[
        Literal["none", "bleu", "chrf", "loss", "f1"],
        Meaning(
            "keep the checkpoint with the best value of this score on dev, the first if several "
            "are equal. The final model is the average of average_last checkpoints that end with "
            "it. Every evaluated step is saved"
        ),
    ] = "none"
    stop_after: Annotated[
        Count, Meaning("stop after this many evaluations without improvement; 0: never")
    ] = 0
    log_steps: Annotated[Positive, Meaning("steps between lines of metrics")] = 50


@dataclass(frozen=True)
class DecodingConfig(Declared):
    """The search for the outputs of a trained model (§6.1).

    >>> DecodingConfig(beam_size=1).alpha, DecodingConfig().beam_size
    (0.6, 4)
    """

    inside = "decoding."
    rules = (
        Rule(
            lambda decoding: decoding.narrowing and decoding.patience != 1,
            "decoding.narrowing=true requires decoding.patience=1, found {patience:g}; set "
            "decoding.patience=1, or decoding.narrowing=false",
        ),
    )

    beam_size: Annotated[Positive, Le(10_000), Meaning("hypotheses kept; 1 is greedy search")] = 4
    alpha: Annotated[float, Ge(0), Le(10), Meaning("exponent of the length penalty")] = 0.6
    length_penalty: Annotated[
        Literal["gnmt", "length"],
        Meaning(
            "divisor of log P: gnmt is ((5 + |y|) / 6)^alpha (Wu et al. 2016), length is |y|^alpha "
            "(Marian, fairseq)"
        ),
    ] = "gnmt"
    patience: Annotated[
        float,
        Ge(0),
        Le(1000),
        Meaning(
            "end a sentence's search when patience x beam_size hypotheses have ended (Kasai et al. "
            "2022); 1: as in CTranslate2 and fairseq; 0: search until no hypothesis can become "
            "better than those that have ended"
        ),
    ] = 0.0
    narrowing: Annotated[
        bool,
        Meaning(
            "with patience 1, narrow the beam of a sentence by one for each output that has ended, "
            "as Marian does"
        ),
    ] = False
    max_extra_length: Annotated[
        Positive,
        Le(1_000_000),
        Meaning("maximum number of tokens of a translation beyond those of its source"),
    ] = 50
    batch_tokens: Annotated[Positive, Meaning("source tokens decoded together")] = 4096


Language = Annotated[str, MaxLen(500)]  # OPUS-MT has groups of languages


@dataclass(frozen=True)
class DataConfig(Declared):
    """The preparation of text (§5.1), and the scoring of translations."""

    inside = "data."
    rules = (
        Rule(
            lambda data: 0 < data.max_length_ratio < 1,
            "data.max_length_ratio={max_length_ratio} would drop all pairs, because the longer "
            "side is at least as long as the other; set it to 1 or more, or to 0 to drop none",
        ),
        Rule(
            # Written so that NaN is refused too.
            lambda data: not all(type(w) is float and 0 < w <= _HEAVIEST for w in data.weights),
            "data.train_weights={train_weights}: expected numbers above 0 and at most "
            f"{_HEAVIEST:,} with commas between, as in 3,1",
        ),
        Rule(
            lambda data: not (data.source_language + data.target_language).isprintable(),
            "data.source_language={source_language!r}, data.target_language={target_language!r}: "
            "expected codes such as en or zh-Hant, or nothing if a language is not known",
        ),
    )

    task: Annotated[
        Literal["translation", "parsing"],
        Meaning("parsing (§6.3) writes the labels of a tree over the source's words"),
    ] = "translation"
    word_positions: Annotated[
        bool,
        Meaning(
            "in parsing, use half of the width of position encodings for the number of the word "
            "(not in the paper)"
        ),
    ] = False
    vocabularies: Annotated[
        Literal["shared", "separate"],
        Meaning("one vocabulary for both languages, or one for each; ignored if flags name files"),
    ] = "shared"
    vocabulary_size: Annotated[
        Positive,
        Ge(5),
        Meaning("pieces of a learned BPE vocabulary; in a parser, labels do not count"),
    ] = 37_000
    vocabulary_up_to: Annotated[
        bool, Meaning("learn fewer pieces if the text is too small for all of them")
    ] = False
    vocabulary_sample: Annotated[
        Positive,
        Meaning("lines sampled to learn the vocabulary from; from each side if separate"),
    ] = 1_000_000
    lowercase: Annotated[
        bool, Meaning("a learned vocabulary lower-cases all text, so translations are lower-case")
    ] = False
    nfkc: Annotated[
        bool, Meaning("a learned vocabulary normalizes text to NFKC: the ligature fi to f, i")
    ] = False
    subword_dropout: Annotated[
        Share,
        Meaning(
            "re-segment the training text in every epoch, skipping each BPE merge with this "
            "probability (BPE-dropout); for a unigram vocabulary this is the exponent alpha, and a "
            "lower value is more random; 0: off"
        ),
    ] = 0.0
    max_length: Annotated[
        Positive,
        Ge(2),
        Le(1_000_000),
        Meaning(
            "maximum length of a sentence in tokens, end mark included: longer training pairs are "
            "left out, longer input to translate is cut"
        ),
    ] = 256
    max_length_ratio: Annotated[
        float,
        Ge(0),
        Meaning(
            "drop pairs of which one side has more than this many times the tokens of the other; "
            "0: drop none"
        ),
    ] = 0.0
    # A setting instead of a part of --train_source, because whatever could stand between a path and
    # its weight may be in a path, or is a sign of the shell or of an address: , : = @ *
    train_weights: Annotated[
        str,
        Meaning(
            "weights of the corpora: with 3,1, 3/4 of an epoch's pairs come from the first "
            "--train_source and 1/4 from the second; empty: each pair once"
        ),
    ] = ""
    extra_share: Annotated[Rate, Meaning("share of --extra_trees among the trees trained on")] = 0.5
    unescape_html: Annotated[bool, Meaning("read &amp; and other HTML entities as characters")] = (
        False
    )
    buckets: Annotated[Positive, Meaning("maximum number of batch shapes, each compiled once")] = 23
    packing: Annotated[
        bool,
        Meaning(
            "in training a row contains several pairs, which do not attend to each other: there "
            "are few batch shapes, and usually over 95% of their tokens are not padding; the cost "
            "of attention grows with a row's length"
        ),
    ] = False
    bleu_tokenize: Annotated[
        Literal["13a", "none", "intl", "char", "zh"],
        Meaning("sacreBLEU's tokenizer; none for text that has been tokenized"),
    ] = "13a"
    bleu_lowercase: Annotated[bool, Meaning("score without regard to case")] = False
    source_language: Annotated[
        Language, Meaning("code of the source language, such as fi or zh; empty: unknown")
    ] = "en"
    target_language: Annotated[
        Language,
        Meaning("code of the target language; also selects Moses' rules for the paper's BLEU"),
    ] = "de"

    @property
    def languages(self) -> str:
        """The languages as `en to de`; empty if neither is known."""
        pair = self.source_language, self.target_language
        return " to ".join(code or "unknown" for code in pair) if any(pair) else ""

    @property
    def weights(self) -> list[float]:
        """The weight of each corpus; empty if none are given."""
        return [_parse(text, float) for text in self.train_weights.split(",") if self.train_weights]


def _parses(config: "Config") -> bool:
    return config.data.task == "parsing"


@dataclass(frozen=True)
class Config(Declared):
    """All settings of one experiment.

    >>> Config(model=ModelConfig(num_layers=2)).model.num_layers
    2
    >>> ModelConfig(dropout_rate=1.5)
    Traceback (most recent call last):
        ...
    jax_transformer.errors.InputError: model.dropout_rate: expected a value less than 1, found 1.5
    """

    rules = (
        Rule(
            lambda config: config.data.word_positions and not _parses(config),
            "data.word_positions=true is for parsing only; set data.word_positions=false",
        ),
        Rule(
            lambda config: (
                config.data.word_positions
                and (config.model.positions != "sinusoidal" or config.model.d_model % 4)
            ),
            "data.word_positions=true requires model.positions=sinusoidal and a model.d_model "
            "that is a multiple of 4, found {model.positions}, {model.d_model}; change it, or set "
            "data.word_positions=false",
        ),
        Rule(
            lambda config: _parses(config) and config.data.subword_dropout,
            "data.subword_dropout={data.subword_dropout:g} is for translation only; set it to 0",
        ),
        Rule(
            lambda config: _parses(config) and config.data.vocabularies != "shared",
            "data.vocabularies=separate is for translation only, because the output of a parser "
            "has its own labels anyway; set data.vocabularies=shared",
        ),
        Rule(
            lambda config: _parses(config) and config.decoding.max_extra_length < 3,
            "decoding.max_extra_length={decoding.max_extra_length} is too short for a tree: even "
            "the smallest has three labels more than words, the end mark included; set it to 3 or "
            "more",
        ),
        Rule(
            lambda config: (
                config.training.keep_best in (("bleu", "chrf") if _parses(config) else ("f1",))
            ),
            "training.keep_best={training.keep_best} is not a score of {data.task}; choose loss or "
            "none, for translation also bleu or chrf, for parsing f1",
        ),
        Rule(
            # A position beyond the last row of the table would give NaN.
            lambda config: (
                config.model.positions == "learned" and config.model.max_positions < config.longest
            ),
            "model.max_positions={model.max_positions}: expected at least {longest}, "
            "data.max_length + decoding.max_extra_length; raise it, or lower one of those",
        ),
    )

    model: ModelConfig = field(default_factory=ModelConfig)  # pyright: ignore
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    data: DataConfig = field(default_factory=DataConfig)

    @property
    def longest(self) -> int:
        """The length of the longest output, in tokens."""
        return self.data.max_length + self.decoding.max_extra_length


SECTIONS: dict[str, Any] = {part.name: part.type for part in dataclasses.fields(Config)}
# Type and meaning of each setting, by its dotted name.
SETTINGS = {
    f"{section}.{name}": hint
    for section, kind in SECTIONS.items()
    for name, hint in annotations(kind).items()
}


def settings(config: Config) -> dict[str, Value]:
    """Return the value of every setting by its dotted name, in order of declaration."""
    return {
        f"{section}.{name}": value
        for section in SECTIONS
        for name, value in vars(getattr(config, section)).items()
    }


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
    expect_a(str, **{f"setting {n}": text for n, text in enumerate(assignments, start=1)})
    model, changes = config.model, {"model": {}}
    for width in HEAD_WIDTHS:
        if getattr(model, width) * model.num_heads == model.d_model:
            changes["model"][width] = None
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(
                f"--set {assignment}: expected section.name=value, such as model.d_k=16"
            )
        if name not in SETTINGS:
            raise InputError(
                f"--set {assignment}: no setting is called {name}{did_you_mean(name, SETTINGS)}"
            )
        section, leaf = name.split(".")
        changes.setdefault(section, {})[leaf] = _parse(text.strip(), get_args(SETTINGS[name])[0])
    changed = {
        section: dataclasses.replace(getattr(config, section), **values)
        for section, values in changes.items()
    }
    return dataclasses.replace(config, **changed)


def override_free(config: Config, *assignments: str) -> Config:
    """Return the config of a trained model with settings changed that may change after training.

    Raises what `override` does, and InputError for another setting.
    """
    changed = override(config, *assignments)
    for assignment in assignments:
        if not assignment.strip().startswith(FREE_SETTINGS):
            raise InputError(
                f"--set {assignment}: this setting cannot change after training; only decoding.*, "
                "data.bleu_*, data.source_language and data.target_language can; remove it"
            )
    return changed


def differing_settings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return a text `name=ours instead of theirs` for each setting of both that differs."""
    return [
        f"{name}={value!r} instead of {theirs[name]!r}"
        for name, value in ours.items()
        if value != theirs.get(name, value)
    ]


def _parse(text: str, kind: Any) -> Any:
    """Return the text as a value of this type, or the text itself, which the check refuses."""
    if kind in (bool, bool | None):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
    if kind in (int, float) and text.isascii():  # Python reads the digits of every script
        with contextlib.suppress(ValueError):
            return kind(text)
    return text
