"""Settings: what is accepted, what is refused and what the error names."""

import dataclasses
import functools
import json

import pytest
from refusals import refusal

from jax_transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    ModelConfig,
    TrainingConfig,
    differing_settings,
    override,
    settings,
)
from jax_transformer.errors import InputError
from jax_transformer.files import encode_json, parse_json


def read_back(config: Config) -> Config:
    return parse_json(encode_json(config), Config)


def setting_of(config: Config, name: str):
    return settings(config)[name]


def test_a_table_of_learned_positions_shorter_than_the_longest_output_is_refused():
    learned = override(Config(), "model.positions=learned")
    assert override(learned, "model.max_positions=306").model.max_positions == 256 + 50
    with pytest.raises(InputError, match="expected at least 306"):
        override(learned, "model.max_positions=305")


def test_the_defaults_are_the_paper_s_base_model():
    model, training, decoding = Config().model, Config().training, Config().decoding
    assert (model.num_layers, model.d_model, model.d_ff) == (6, 512, 2048)
    assert (model.num_heads, model.d_k, model.d_v) == (8, 64, 64)
    assert (model.dropout_rate, training.label_smoothing) == (0.1, 0.1)
    assert (training.steps, training.warmup_steps, training.batch_tokens) == (100_000, 4000, 25_000)
    assert (training.adam_b1, training.adam_b2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (decoding.beam_size, decoding.alpha, decoding.max_extra_length) == (4, 0.6, 50)
    assert Config().data.vocabulary_size == 37_000


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("model.d_k=16", 16),
        ("training.steps=300_000", 300_000),
        ("training.adam_epsilon=1e-6", 1e-6),
        ("decoding.alpha=1", 1.0),
        ("model.tie_embeddings=False", False),
        ("model.positions=learned", "learned"),
    ],
)
def test_an_override_has_its_setting_s_type_and_changes_nothing_else(assignment, expected):
    changed = override(Config(), assignment)
    name = assignment.partition("=")[0].strip()
    found = setting_of(changed, name)
    assert found == expected
    assert type(found) is type(expected)
    assert settings(changed) | {name: 0} == settings(Config()) | {name: 0}


def test_heads_are_d_model_over_h_wide_unless_a_width_is_given():
    def widths(model):
        return model.d_k, model.d_v

    assert widths(ModelConfig(d_model=64)) == (8, 8)
    assert widths(ModelConfig(d_model=64, d_k=64)) == (64, 8)
    narrow = override(Config(), "model.d_k=16")
    for start, changes, expected in (
        (Config(), ["model.d_model=64"], (8, 8)),
        (Config(), ["model.num_heads=32"], (16, 16)),
        (Config(), ["model.num_heads=4", "model.d_model=128", "model.d_v=5"], (32, 5)),
        (narrow, ["model.d_model=256"], (16, 32)),
        (narrow, ["training.steps=3"], (16, 64)),
    ):
        changed = override(start, *changes)
        assert widths(changed.model) == expected
        assert read_back(changed) == changed
        # The same with one assignment after another, as an experiment and --set make them.
        assert widths(functools.reduce(override, changes, start).model) == expected


def test_a_d_model_that_heads_do_not_divide_needs_widths():
    for change in ("model.num_heads=7", "model.d_model=100"):
        message = refusal(override, Config(), change)
        assert "a multiple of model.num_heads=" in message
        assert "set model.d_k and model.d_v" in message
    assert "d_model=100: " in refusal(lambda: ModelConfig(d_model=100))
    assert override(Config(), "model.num_heads=7", "model.d_k=9", "model.d_v=9").model.d_k == 9


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("model.d_modle", "model.d_model"),
        ("d_model", "model.d_model"),
        ("training.dropout_rate", "model.dropout_rate"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_nearest_known_one(typed, meant):
    message = refusal(override, Config(), f"{typed}=1")
    assert f"--set {typed}=1: no setting is called {typed}; did you mean {meant}?" in message


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("model.d_k=sixteen", "integer, found 'sixteen'"),
        ("model.d_k=", "integer, found ''"),
        ("decoding.alpha=high", "number, found 'high'"),
        ("decoding.alpha=\u0663", "number, found '\u0663'"),
        ("training.steps=\uff13", "integer, found '\uff13'"),
        ("model.tie_embeddings=1", "boolean, found '1'"),
        ("model.positions=learnt", "'sinusoidal' or 'learned', found 'learnt'; did you mean lear"),
        ("model.num_layers=0", "equal to 1, found 0"),
        ("model.dropout_rate=1", "less than 1, found 1"),
        ("training.learning_rate_scale=0", "greater than 0, found 0"),
        ("training.adam_b2=1.0", "less than 1, found 1.0"),
        ("decoding.alpha=-0.6", "equal to 0, found -0.6"),
        ("model.d_model=99999999999999999992", "equal to 2147483647, found 9999"),
        ("model.d_model=1", "equal to 2, found 1"),
        ("decoding.alpha=1e30", "equal to 10, found 1e+30"),
        ("training.learning_rate_scale=inf", "finite number, found inf"),
    ],
)
def test_a_value_of_the_wrong_type_or_out_of_range_is_refused(assignment, expected):
    message = refusal(override, Config(), assignment)
    assert message.startswith(f"{assignment.partition('=')[0]}: expected ")
    assert expected in message
    section, leaf = assignment.partition("=")[0].split(".")
    with pytest.raises(ValueError, match=leaf):
        parse_json(json.dumps({section: {leaf: None}}).encode(), Config)


FLOATS = [name for name, value in settings(Config()).items() if isinstance(value, float)]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_no_number_may_be_nan_or_infinite(value):
    for name in FLOATS:
        assert name in refusal(override, Config(), f"{name}={value}")


FUSED = ("model.compute_dtype=bfloat16", "model.fused_attention=true")


@pytest.mark.parametrize("change", ["d_k=4", "d_k=136", "d_v=8", "compute_dtype=float32"])
def test_an_attention_that_cudnn_cannot_compute_is_refused(change):
    assert override(Config(), *FUSED).model.can_be_fused
    assert "multiple of 8" in refusal(override, Config(), *FUSED, f"model.{change}")
    assert override(Config(), *FUSED, "model.fused_attention=none").model.fused_attention is None


def test_sines_and_cosines_want_an_even_width_and_learned_positions_any():
    assert "model.d_model=17" in refusal(override, Config(), "model.d_model=17")
    learned = override(Config(), "model.positions=learned")
    assert override(learned, "model.d_model=17", "model.num_heads=1").model.d_model == 17


def test_positions_count_words_in_parsing_alone_and_with_pairs_in_each_half():
    assert "data.word_positions=true" in refusal(override, Config(), "data.word_positions=true")
    parsing = override(Config(), "data.task=parsing")
    counting = override(parsing, "data.word_positions=true")
    assert counting.data.word_positions
    assert "multiple of 4" in refusal(override, counting, "model.d_model=514", "model.num_heads=2")
    assert "learned" in refusal(override, counting, "model.positions=learned")


def test_settings_come_back_from_json_as_they_went():
    config = Config(
        ModelConfig(d_k=16, positions="learned", tie_embeddings=False, dropout_rate=0.0),
        TrainingConfig(steps=7, adam_epsilon=1e-12, learning_rate_scale=2.0),
        DecodingConfig(alpha=0.0),
        DataConfig(bleu_tokenize="none", bleu_lowercase=True),
    )
    for one in (Config(), config):
        back = read_back(one)
        assert back == one
        assert hash(back) == hash(one)
        for name, value in settings(one).items():
            assert type(settings(back)[name]) is type(value), name


def test_a_setting_newer_than_the_values_takes_its_default():
    values = dataclasses.asdict(override(override(Config(), "model.d_k=16"), "data.max_length=99"))
    del values["model"]["attention_radius"], values["decoding"]
    assert parse_json(encode_json(values), Config) == override(
        override(Config(), "model.d_k=16"), "data.max_length=99"
    )


def test_differences_name_the_settings_that_differ_and_no_others():
    ours = settings(override(Config(), "model.d_k=16", "model.positions=learned"))
    assert differing_settings(ours, ours) == []
    assert differing_settings(ours, settings(Config())) == [
        "model.d_k=16 instead of 64",
        "model.positions='learned' instead of 'sinusoidal'",
    ]
