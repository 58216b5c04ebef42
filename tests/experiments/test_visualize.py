"""experiments.visualize, opened in a browser: what is shown against what the model does."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from commands import run_command
from small_run import LINES, SMALL, write_run

from jax_transformer.config import Config, override
from jax_transformer.data.vocabularies.sentencepiece import train_vocabulary
from jax_transformer.decoding.alignments import AttentionMap
from jax_transformer.runs.load import build_model, load
from jax_transformer.runs.model import write_model
from jax_transformer.runs.run_dir import IMPORTED, Run, RunFolder
from jax_transformer.serving.app import PAGE
from jax_transformer.training.train_step import initial_params
from jax_transformer.viewer.attention_page import attention_page
from jax_transformer.viewer.live_page import half_precision
from jax_transformer.viewer.page import FOLDER

KINDS = ("encoder_{}/self_attention", "decoder_{}/self_attention", "decoder_{}/cross_attention")
SOURCE = [
    " Der",
    "</script ><img src=x onerror=boom()>",
    "<!--<script>",
    " &amp;",
    " \u2028'\"",
    "</s>",
]
TARGET = [" <b>two</b>", " @DATA@", "</s>"]
LAYERS, HEADS = 2, 3


def random_maps(seed: int = 3, encoder: int = LAYERS, decoder: int = LAYERS) -> dict:
    """Weights of a model that there is not, none like another."""
    draw = np.random.default_rng(seed)
    source, target = len(SOURCE), len(TARGET)
    shapes = dict(zip(KINDS, [(source, source), (target, target), (target, source)], strict=True))
    return {
        kind.format(layer): draw.dirichlet(0.3 * np.ones(keys), (1, HEADS, queries))
        for kind, (queries, keys) in shapes.items()
        for layer in range(encoder if kind.startswith("encoder") else decoder)
    }


def page_of(maps: dict[str, np.ndarray], alignment=()) -> str:
    """The page of random weights."""
    given = {name: with_pieces(name, weights[0]) for name, weights in maps.items()}
    source, target = ("".join(pieces[:-1]).strip() for pieces in (SOURCE, TARGET))
    return drawn_page(source, target, given, alignment)


def drawn_page(
    source: str, target: str, maps: dict[str, AttentionMap], alignment=(), end="</s>"
) -> str:
    """The page of a model that there is not, whose outputs have an end mark of their own."""
    model: Any = SimpleNamespace(
        attention_maps=lambda *_: maps,
        align=lambda *_: [alignment],
        description="drawn at random",
        target_vocabulary=SimpleNamespace(all_pieces=["<pad>", end], eos_id=1),
    )
    return attention_page(model, source, target, forced=False)


def with_pieces(name: str, weights: np.ndarray) -> AttentionMap:
    """Weights with the pieces on their axes; the decoder reads the target shifted right."""
    read = ["<s>", *TARGET[:-1]]
    queries = SOURCE if name.startswith("encoder") else read
    return AttentionMap(weights, queries, read if "decoder_" in name and "self" in name else SOURCE)


def test_the_decoder_writes_the_end_mark_of_its_own_vocabulary():
    maps = {name: with_pieces(name, weights[0]) for name, weights in random_maps().items()}
    page = drawn_page("one", "two", maps, end="END")
    assert re.findall('"writes": ?"([^"]*)"', page)[len(TARGET) - 1 :: len(TARGET)] == ["END"] * 2


@pytest.fixture
def opened(browser):
    """open(path) -> page; no page may have erred or requested another file."""
    contexts, wrong = [], []

    def open_page(path: Path):
        contexts.append(browser.new_context(offline=True))
        contexts[-1].set_default_timeout(120_000)  # milliseconds
        tab = contexts[-1].new_page()
        own = path.as_uri(), "blob:"  # the live page's worker
        tab.on("request", lambda r: None if r.url.startswith(own) else wrong.append(r.url))
        tab.on("console", lambda message: wrong.append(message.text))
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("dialog", lambda dialog: wrong.append(dialog.message))
        tab.goto(path.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


@pytest.fixture
def drawn(tmp_path):
    """A page of random weights."""
    content = page_of(random_maps(), [(1, 0), (3, 1)])
    (path := tmp_path / "page.html").write_text(content, encoding="utf-8")
    return path


def pick(tab, picker: str, index: int) -> None:
    tab.locator(f"#{picker} label").nth(index).click()


def texts(tab, side: str) -> list[str]:
    return tab.locator(f"#{side} .token .text").all_text_contents()


def shown_weights(tab, side: str) -> list[float]:
    return [float(text) for text in tab.locator(f"#{side} .weight").all_text_contents()]


def assert_all_shown(tab, maps: dict[str, np.ndarray]) -> None:
    """Every view, layer, head and query: the numbers on hover are the model's."""
    for view, kind in enumerate(KINDS):
        pick(tab, "views", view)
        layers = [maps[name][0] for name in map(kind.format, range(12)) if name in maps]
        assert tab.locator("#layers label").count() == len(layers)
        for layer, weights in enumerate(layers):
            pick(tab, "layers", layer)
            for head, expected in enumerate([weights.mean(axis=0), *weights]):
                pick(tab, "heads", head)
                assert tab.locator("#heads label").count() == len(weights) + 1
                for query in range(expected.shape[0]):
                    tab.locator("#queries .token").nth(query).hover()
                    np.testing.assert_allclose(
                        shown_weights(tab, "keys"), expected[query], atol=6e-4
                    )


def test_hovering_shows_the_weights_of_the_picked_head_and_layer(opened, tmp_path):
    maps = random_maps(3, 2, 1)
    (path := tmp_path / "page.html").write_text(page_of(maps), encoding="utf-8")
    assert_all_shown(opened(path), maps)


def test_tokens_are_shown_as_they_are_whatever_html_they_spell(opened, drawn):
    tab = opened(drawn)
    pick(tab, "views", 0)
    assert texts(tab, "queries") == texts(tab, "keys") == SOURCE
    assert tab.locator("#source").text_content() == "".join(SOURCE[:-1]).strip()
    assert tab.locator("#target").text_content() == "".join(TARGET[:-1]).strip()
    pick(tab, "views", 2)
    assert texts(tab, "queries") == ["<s>", *TARGET[:-1]]
    assert texts(tab, "keys") == SOURCE
    arrows = tab.locator("#queries small").all_text_contents()
    assert arrows == [f"→ {text.strip()}" for text in TARGET]
    pairs = "><img = <b>two</b> · onerror=boom()><!--<script> = DATA"
    assert tab.locator("#words").inner_text() == pairs
    assert tab.locator("img, b").count() == 0


def test_the_keyboard_does_what_the_pointer_does(opened, drawn):
    tab = opened(drawn)
    expected = random_maps()["decoder_1/cross_attention"][0].mean(axis=0)[1]
    np.testing.assert_allclose(shown_weights(tab, "keys"), expected, atol=6e-4)  # as it opens
    tab.locator("#views input").nth(0).focus()
    tab.keyboard.press("ArrowRight")  # the decoder's own
    for _ in range(3):
        tab.keyboard.press("Tab")  # layers, heads, first token
    tab.keyboard.press("ArrowDown")
    expected = random_maps()["decoder_1/self_attention"][0].mean(axis=0)[1]
    np.testing.assert_allclose(shown_weights(tab, "keys"), expected, atol=6e-4)
    described = tab.locator("#description").inner_text()
    assert described.startswith("“<b>two</b>” (reads this, writes “@DATA@”) attends to ")
    tab.keyboard.press("Enter")
    tab.locator("#queries .token").nth(0).hover()
    assert tab.locator("#description").inner_text() == described  # held
    tab.keyboard.press("Escape")
    assert tab.locator(".token.active").count() == 0


def test_hebrew_is_read_from_the_right(opened, tmp_path):
    boxes = {
        FOLDER / "attention_page.html": ["#source", "#target"],
        FOLDER / "live_page.html": ["#text", "#output"],
        PAGE: ["#text"],
    }
    path = tmp_path / "page.html"
    for template, names in boxes.items():
        html = template.read_text("utf-8")
        path.write_text(re.sub("<script.*?</script>", "", html, flags=re.DOTALL), encoding="utf-8")
        tab = opened(path)
        for name in names:
            filled = "(box) => { box.value = box.textContent = '\u05e9\u05dc\u05d5\u05dd.'; }"
            tab.locator(name).evaluate(filled)
            shown = tab.locator(name).evaluate("(box) => getComputedStyle(box).direction")
            assert shown == "rtl", (template, name)


@pytest.mark.release
def test_a_long_sentence_fits_a_phone_and_pointing_at_it_moves_nothing(opened, tmp_path):
    words = [*(f" {'Schifffahrt' * (1 + i % 2)}{i}" for i in range(29)), "</s>"]
    shape = (8, len(words), len(words))
    random = AttentionMap(np.random.default_rng(5).dirichlet(np.ones(30), shape[:2]), words, words)
    maps = {kind.format(layer): random for kind in KINDS for layer in range(3)}
    path = tmp_path / "long.html"
    text = "".join(words[:-1]).strip()
    path.write_text(drawn_page(text, text, maps), "utf-8")
    tab = opened(path)
    tab.set_viewport_size({"width": 320, "height": 480})
    pick(tab, "views", 2)
    widest = tab.evaluate("document.documentElement.scrollWidth")
    for side in ("queries", "keys"):
        for index in (0, 17, 29):
            token = tab.locator(f"#{side} .token").nth(index)
            token.scroll_into_view_if_needed()
            before, scrolled = token.bounding_box(), tab.evaluate("scrollY")
            token.hover()
            assert token.bounding_box() == before
            assert tab.evaluate("scrollY") == scrolled
            widest = max(widest, tab.evaluate("document.documentElement.scrollWidth"))
            box = tab.locator("#description").bounding_box()
            assert 0 <= box["y"] < box["y"] + box["height"] <= before["y"]  # above, not over it
    assert widest <= 320


@pytest.fixture(scope="module")
def separate(tmp_path_factory) -> Path:
    """A run with random parameters and two vocabularies: words are one piece of the target's."""
    folder = tmp_path_factory.mktemp("separate")
    words = "the teacher knows the dictionary"
    texts = [" ".join(words), words]  # the source's vocabulary has letters only
    source, target = (
        train_vocabulary([text] * 9, 99, folder / str(number), up_to=True)
        for number, text in enumerate(texts)
    )
    run = Run("base", 1, override(Config(), *SMALL, "data.vocabularies=separate"), corpus=IMPORTED)
    params = initial_params(build_model(run, source, target), jax.random.key(1))
    write_model(RunFolder(folder / "run"), run, source, target, jax.device_get(params), [1])
    return folder / "run"


def test_the_command_shows_the_words_and_weights_of_a_pair(separate, opened, tmp_path):
    flags = [f"--workdir={separate}", "--text=the  teacher", "--target=the dictionary"]
    page = tmp_path / "new" / "folder" / "page.html"
    shown = run_command("visualize", *flags, f"--output={page}").stdout
    assert shown == f"the dictionary\nwritten to {page}\n"
    tab = opened(page)
    assert tab.locator("#target-name").text_content() == "given"
    assert tab.locator("#source").text_content() == "the  teacher"
    pairs = tab.locator("#words").inner_text().split(" · ")
    assert sorted(pair.split(" = ")[1] for pair in pairs) == ["dictionary", "the"]
    assert_all_shown(tab, model_maps(separate, "the teacher", "the dictionary"))


def model_maps(run: Path, source: str, target: str) -> dict[str, np.ndarray]:
    """What the model attends to, by applying the module."""
    trained = load(run)
    return forced_maps(trained, source, trained.target_vocabulary.encode(target))


def forced_maps(trained: Any, source: str, target: list[int]) -> dict[str, np.ndarray]:
    inputs = np.array([[trained.target_vocabulary.bos_id, *target]])
    tokens = np.array([trained.vocabulary.encode(source, eos=True)])
    _, sown = trained.module.apply(
        {"params": trained.params}, tokens, inputs, mutable=["intermediates"]
    )
    found = jax.device_get(sown["intermediates"])
    names = [kind.format(layer) for kind in KINDS for layer in range(2)]
    parts = (name.split("/") for name in names if name.split("/")[0] in found)
    return {f"{stack}/{kind}": found[stack][kind]["attention_weights"][0] for stack, kind in parts}


@pytest.fixture(scope="module")
def live(tmp_path_factory) -> tuple[Path, Path]:
    """A run with random parameters and pieces that spell HTML, and its live page."""
    folder = tmp_path_factory.mktemp("live")
    html = ["the <b>teacher</b> </script ><img src=x onerror=boom()>", "<!--<script> &amp; opens"]
    run = write_run(folder / "run", "model.num_layers=2", lines=[*LINES, *html * 9], pieces=120)
    page = folder / "page.html"
    shown = run_command("visualize", f"--workdir={run}", "--live", f"--output={page}").stdout
    assert shown == f"written to {page}\n"
    return run, page


def translate_on(tab, text: str) -> str:
    tab.locator("#text").fill(text)
    tab.locator("#text").press("Enter")
    return outcome_on(tab)


def outcome_on(tab) -> str:
    tab.locator("#status", has_text="log P").wait_for()
    return "".join(tab.locator("#output button").all_text_contents())


@pytest.mark.slow
def test_the_live_page_writes_what_the_model_writes_and_shows_where_it_attends(live, opened):
    run, page = live
    trained, text = load(run), "the <b>teacher</b> opens"
    trained = trained.with_params(half_precision(trained.params))
    (best,) = trained.translate([text], n_best=1)[0]
    tab = opened(page)
    written = translate_on(tab, text)
    assert written.replace("</s>", "") == best.text.replace(" ", "")
    assert f"{best.score:.2f}" in tab.locator("#status").text_content()
    assert tab.locator("#tree button.path").count() == best.num_tokens + 1
    assert_all_shown(tab, forced_maps(trained, text, list(best.tokens[:-1])))
    assert tab.locator("img, b, script[src]").count() == 0


@pytest.mark.slow
def test_the_live_page_by_keyboard_with_a_change(live, opened):
    tab = opened(live[1])
    usual = translate_on(tab, "the pupil opens the door")
    tab.locator("#beam_size").focus()
    for _ in range(7):
        tab.keyboard.press("ArrowLeft")
    greedy = outcome_on(tab)
    rows = tab.locator("#tree button").count()
    assert rows == 1 + len(tab.locator("#output button").all())  # of one hypothesis
    tab.locator("#drop").press("Enter")
    tab.locator("#dropped", has_text="head").wait_for()
    tab.locator("#before:visible").wait_for()
    tab.locator("#reset").press("Enter")
    tab.locator("#before").wait_for(state="hidden")
    assert outcome_on(tab) == usual
    assert greedy
    tab.locator("#tree button.path").nth(-1).focus()
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Enter")
    assert outcome_on(tab) == usual.removesuffix("</s>")
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.slow
def test_the_live_page_of_a_parser_says_that_its_search_is_not_constrained(opened, tmp_path):
    run = write_run(tmp_path / "run", "data.task=parsing", "data.word_positions=true")
    page = tmp_path / "page.html"
    run_command("visualize", f"--workdir={run}", "--live", f"--output={page}")
    tab = opened(page)
    assert translate_on(tab, "the door opens .")
    assert "constrained" in tab.locator("header").inner_text()
