"""The page that runs a model: what its JavaScript computes, against JAX and sentencepiece."""

import base64
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_params import random_params
from sentencepiece_models import trained
from small_run import write_run

import jax_transformer as jt
from jax_transformer.data.sources import Sources, Text
from jax_transformer.data.vocabularies.piece_table import PieceTable
from jax_transformer.data.vocabularies.sentencepiece import SentencePieceVocabulary
from jax_transformer.decoding.line_search import lines_of
from jax_transformer.demo import sentence_pairs
from jax_transformer.errors import InputError
from jax_transformer.formats.layout import NEVER
from jax_transformer.training.train_step import abstract_params
from jax_transformer.viewer import live_page
from jax_transformer.viewer.page import FOLDER
from tools import live_demo

PARTS = ("transformer.js", "beam_search.js", "vocabulary.js", "live_worker.js")
PLAIN = "{ dropped: new Set(), temperature: 1, scaled: true, positions: true, radius }"
RELATIVES = {
    "paper": ("model.num_layers=2",),
    "pre-norm": (
        *("model.num_layers=2", "model.decoder_layers=1", "model.norm_position=pre"),
        *("model.activation=gelu", "model.positions=learned", "model.max_positions=40"),
        *("model.attention_bias=true", "model.output_bias=true", "model.tie_embeddings=false"),
        "model.attention_radius=2",
    ),
    "marian": (
        *("model.activation=swish", "model.tie_source=false", "decoding.length_penalty=length"),
        *("decoding.patience=1", "decoding.narrowing=true", "data.max_length=40"),
    ),
}
SENTENCES = [
    "the old teacher gets up",
    "we know that it rains",
    "the pupil opens the door",
    "a",
    "it  gets\tup \u00fc \u0308",
]


def script() -> str:
    return "\n".join((FOLDER / name).read_text("utf-8") for name in PARTS)


@pytest.fixture(scope="module")
def computed(browser):
    """A function of a function in JavaScript and its argument: what it gives, inside the worker."""
    tab = browser.new_page()

    def evaluate(function: str, argument: Any) -> Any:
        return tab.evaluate(
            f"(argument) => {{ {script()}; return ({function})(argument); }}", argument
        )

    yield evaluate
    tab.close()


def content_of(model: jt.TrainedModel) -> dict[str, Any]:
    """What a page of this model contains."""
    return live_page.live_content(model, model.config.decoding)


def odd_lines(count: int = 500) -> list[str]:
    """Sentences, most with characters that people seldom type, anywhere in them."""
    draw = random.Random(7)
    text = [sentence for pair in sentence_pairs("dev")[:200] for sentence in pair]
    odd = [
        *"ÄöüßabcÅ½①ﬁ日本語ᄀİｶ😀 ▁▅?-",
        "\t",
        "\r",
        "\xa0",
        "\u200b",
        "\u2028",
        "\u3000",
        "\ufeff",
        "\ue000",
        "\U0001faff",
    ]
    odd += [
        "  ",
        "e\u0301",
        "\u0308",
        "\u1161",
        "\x85",
        "\x1f",
        "\0",
        "<s>",
        "<unk>",
        "<br>",
        "sss",
        "llll",
        "👩‍🚀",
    ]
    lines = [list(draw.choice(text)) if draw.random() < 0.8 else [] for _ in range(count)]
    for line in lines:
        for _ in range(draw.randrange(10)):
            line.insert(draw.randrange(len(line) + 1), draw.choice(odd))
    return ["".join(line) for line in lines]


def bpe(**options: Any) -> bytes:
    text = [sentence for pair in sentence_pairs("dev")[:200] for sentence in pair]
    return trained([*text, "①½ Åß 日本 ﬁ"], model_type="bpe", vocab_size=400, **options)


MODELS = {
    "plain": {"normalization_rule_name": "identity", "pad_id": 3},
    "normalized": {"normalization_rule_name": "nmt_nfkc_cf", "user_defined_symbols": ["<br>", "-"]},
    "bytes": {"byte_fallback": True, "add_dummy_prefix": False, "remove_extra_whitespaces": False},
}


@pytest.mark.parametrize("name", [*MODELS, "table"])
def test_pieces_are_those_of_sentencepiece_on_odd_text(name, computed):
    model = bpe(**MODELS.get(name, MODELS["bytes"]))
    vocabulary: Any = SentencePieceVocabulary(model)
    if name == "table":  # which lacks some pieces of the model
        special = {"unk_id": "<unk>", "bos_id": "<s>", "eos_id": "</s>", "pad_id": "<pad>"}
        kept = [p for i, p in enumerate(vocabulary.all_pieces) if i % 7 or p in special.values()]
        ids: Any = {key: kept.index(piece) for key, piece in special.items()}
        vocabulary = PieceTable.make(kept, model, **ids)
    content = {**live_page._shown(vocabulary), **live_page._cutting(vocabulary)}
    lines = odd_lines()
    function = """({ content, lines }) => {
      const vocabulary = new Vocabulary(content);
      return lines.map((line) => vocabulary.encode(line));
    }"""
    found = computed(function, {"content": content, "lines": lines})
    assert found == vocabulary.encode_batch(lines)
    assert sum(map(len, found)) > 5_000


STEPS = f"""({{ content, sources, target }}) => {{
  const radius = content.config.attention_radius, changes = {PLAIN};
  const model = new Trained(content).model;
  return sources.map((source) => {{
    const memory = model.remember(model.encode(source, changes, {{}}));
    let cache = model.emptyCache();
    return target.map((token) => {{
      const step = model.decodeStep(memory, cache, token, changes, {{}});
      cache = step.cache;
      return [...step.logits];
    }});
  }});
}}"""
ENCODE = """({ content, lines }) => {
  const trained = new Trained(content);
  return lines.map((line) => [trained.encode(line), trained.isCut]);
}"""
SEARCH = f"""({{ content, lines, beam }}) => {{
  const trained = new Trained(content), radius = content.config.attention_radius;
  const settings = {{ ...content.decoding, beam_size: beam, ...{PLAIN} }};
  return lines.map((line) => {{
    const steps = [...trained.search(trained.encode(line), settings)];
    return [tokensOf(steps.at(-1).best), steps.at(-1).best.score];
  }});
}}"""


def small_model(path: Path, *settings: str, **options: Any) -> jt.TrainedModel:
    """A model with random parameters, in the precision of the page."""
    model = jt.load(write_run(path / "run", *settings, **options))
    return model.with_params(live_page.half_precision(model.params))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "paper")) for name in RELATIVES]
)
def test_logits_are_those_of_jax(name, computed, tmp_path):
    model = small_model(tmp_path, *RELATIVES[name])
    sources = [model.vocabulary.encode(line)[:11] for line in SENTENCES]
    check_logits(model, sources, content_of(model), computed)


def check_logits(model, sources, content, computed, changes=PLAIN, reference=None) -> None:
    """Those of JavaScript's model are those of `reference`, or of the same in JAX."""
    reference = reference or model
    target = [model.target_vocabulary.bos_id, 5, 9, 6, 7]
    sources = [[*source, model.vocabulary.eos_id] for source in sources]
    argument = {"content": content, "sources": sources, "target": target}
    found = computed(STEPS.replace(PLAIN, changes), argument)
    longest = max(map(len, sources))
    padded = [source + [model.vocabulary.pad_id] * (longest - len(source)) for source in sources]
    rows = jnp.array(padded), jnp.array([target] * len(sources))
    expected = jax.jit(reference.module.apply)({"params": reference.params}, *rows)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert np.std(expected) > 0.1


CHANGES = {  # in JavaScript; to the parameters in JAX; to the settings
    "temperature: 1": ("temperature: 4", {"query/kernel": lambda w: w / 4}, []),
    "scaled: true": ("scaled: false", {"query/kernel": lambda w: w * 8**0.5}, []),
    "positions: true": ("positions: false", {"position_table": lambda table: 0 * table}, []),
    "radius }": ("radius: 1 }", {}, ["model.attention_radius=1"]),
    "new Set()": (
        'new Set(["decoder_1/cross_attention 1"])',
        {"decoder_1/cross_attention/output/kernel": lambda w: w.at[1].set(0)},
        [],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_each_change_does_in_the_page_what_it_does_in_jax(change, computed, tmp_path):
    settings = ["model.num_layers=2", "model.positions=learned", "model.max_positions=40"]
    ours, theirs, changed = CHANGES[change]
    model = small_model(tmp_path, *settings)
    other = small_model(tmp_path / "other", *settings, *changed)

    def altered(path, leaf):
        name = "/".join(part.key for part in path)
        return next((f(jnp.array(leaf)) for end, f in theirs.items() if name.endswith(end)), leaf)

    other = other.with_params(jax.tree_util.tree_map_with_path(altered, model.params))
    sources = [model.vocabulary.encode(line)[:11] for line in SENTENCES]
    content, changes = content_of(model), PLAIN.replace(change, ours)
    assert changes != PLAIN
    check_logits(model, sources, content, computed, changes, other)
    with pytest.raises(AssertionError):
        check_logits(model, sources, content, computed, PLAIN, other)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "eos_bias"), [("paper", 6), ("pre-norm", 4), ("marian", 2)])
def test_outputs_are_those_of_jax(name, eos_bias, computed, tmp_path):
    lines = [source for source, _ in sentence_pairs("dev")[:200]]
    settings = [*RELATIVES[name], "model.output_bias=true", "decoding.max_extra_length=20"]
    model = small_model(tmp_path, *settings, lines=lines, pieces=60)
    params = random_params(model.module, seed=2, deviation=0.5)
    params["output_bias"][model.vocabulary.eos_id] = eos_bias  # so that outputs end early
    model = model.with_params(live_page.half_precision(params))
    content = content_of(model)
    for beam, given in ((1, lines), (4, lines[:60])):
        expected = [best for (best,) in model.translate(given, n_best=1, beam_size=beam)]
        found = computed(SEARCH, {"content": content, "lines": given, "beam": beam})
        assert [tokens for tokens, _ in found] == [list(best.tokens) for best in expected]
        scores = [best.score for best in expected]
        np.testing.assert_allclose([score for _, score in found], scores, atol=1e-3)
    assert len({best.num_tokens for best in expected}) > 6  # pyright: ignore


@pytest.mark.slow
def test_a_parser_counts_words_as_in_jax(computed, tmp_path):
    model = small_model(tmp_path, "data.task=parsing", "data.word_positions=true")
    content = content_of(model)
    lines = ["the  teacher gets up .", "rains", "it\u2009a i\u2581t\x0b\u200b \x07", "pupil " * 9]
    translator: Any = model._cached_translator(model.config.decoding)
    sentences: Any = translator.read(lines_of(lines, 1))
    sources = [sentence.tokens for sentence in sentences]
    found, cut = zip(*computed(ENCODE, {"content": content, "lines": lines}), strict=True)
    assert [*found] == [[*source, model.vocabulary.eos_id] for source in sources]
    assert cut == tuple(bool(sentence.rest) for sentence in sentences) == (False,) * 3 + (True,)
    check_logits(model, sources, content, computed)


def test_a_line_is_cut_if_it_has_more_tokens_than_the_model_reads(computed, tmp_path):
    model = jt.load(write_run(tmp_path / "run"))
    most = model.config.data.max_length - 1
    lines = ["a " * count for count in range(1, most + 2)]
    found = computed(ENCODE, {"content": content_of(model), "lines": lines})
    each = [model.vocabulary.encode(line) for line in lines]
    expected = [[[*ids[:most], model.vocabulary.eos_id], len(ids) > most] for ids in each]
    assert found == expected
    assert {cut for _, cut in found} == {False, True}


@pytest.mark.slow
def test_the_model_of_the_site_writes_what_the_run_wrote_before_rounding(computed):
    content, outputs = live_demo.read()
    keys = ("source", "source_tokens", "tokens", "text")
    lines, sources, expected, texts = ([output[key] for output in outputs] for key in keys)
    pad, bos, eos = (content["source"][f"{name}_id"] for name in ("pad", "bos", "eos"))
    longest = max(map(len, sources))
    rows = np.array([source + [pad] * (longest - len(source)) for source in sources])
    config, decoding = jt.ModelConfig(**content["config"]), jt.DecodingConfig(**content["decoding"])
    module = jt.Transformer(config, len(content["source"]["pieces"]), pad)
    leaves, tree = jax.tree.flatten(abstract_params(module))
    halves = np.frombuffer(base64.b64decode(content["weights"]), np.float16).astype(np.float32)
    parts = np.split(halves, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    search = partial(jt.translate, module, decoding=decoding, bos_id=bos, eos_id=eos)
    best = jax.jit(search)(tree.unflatten(shaped), source=rows).tokens[:, 0].tolist()
    assert [row[: len(own)] for row, own in zip(best, expected, strict=True)] == expected
    written = computed(SEARCH, {"content": content, "lines": lines[:5], "beam": 4})
    assert [tokens for tokens, _ in written] == expected[:5]
    encoded = computed(ENCODE, {"content": content, "lines": lines})
    assert encoded == [[source, False] for source in sources]
    pieces = [[content["target"]["pieces"][token] for token in own[:-1]] for own in expected]
    assert ["".join(own).replace("\u2581", " ").strip() for own in pieces] == texts


@pytest.mark.parametrize(
    ("attribute", "value", "named"),
    [
        ("MOST_PARAMETERS", 100, ["100", "experiments.serve"]),
        ("_SETTINGS", {}, ["model.num_layers", "experiments.serve"]),
        ("_DECODING", {}, ["decoding.max_extra_length", "experiments.serve"]),
        ("byte_pair_model", lambda _: None, ["BPE", "experiments.serve", "ctranslate2"]),
    ],
)
def test_what_javascript_cannot_run_is_refused(attribute, value, named, tmp_path, monkeypatch):
    model = jt.load(write_run(tmp_path / "run"))
    monkeypatch.setattr(live_page, attribute, value)
    with pytest.raises(InputError) as refused:
        live_page.live_page(model, model.config.decoding)
    assert all(name in str(refused.value) for name in named)


def test_the_demo_s_examples_are_on_the_page_of_a_model_of_its_text_alone(tmp_path):
    model = jt.load(write_run(tmp_path / "run"))
    for sources, shown in ((Sources(), True), (Sources(train=(Text(("a",), ("b",)),)), False)):
        run = replace(model.run, corpus="demo", sources=sources)
        content = content_of(replace(model, run=run))
        assert (bool(content["examples"]), bool(content["hint"])) == (shown, shown)


def test_a_token_that_an_imported_model_never_writes_stays_so(tmp_path):
    model = jt.load(write_run(tmp_path / "run", "model.output_bias=true"))
    bias = model.params["output_bias"].copy()
    bias[[0, 4]] = NEVER, 65_504
    model = model.with_params({**model.params, "output_bias": bias})
    content = content_of(model)
    halves = np.frombuffer(base64.b64decode(content["weights"]), np.float16)
    assert [halves.min(), halves.max()] == [-65_504, 65_504]
    bias[4] = 65_536
    with pytest.raises(InputError, match="65,504"):
        content_of(model.with_params({**model.params, "output_bias": bias}))


def test_a_unigram_vocabulary_is_refused(tmp_path):
    unigram = trained(SENTENCES * 9, model_type="unigram", vocab_size=40)
    model = jt.load(write_run(tmp_path / "run", vocabulary=unigram))
    with pytest.raises(InputError, match="BPE"):
        live_page.live_page(model, model.config.decoding)
