"""experiments.visualize, opened in a browser: what is shown against what the model attends to."""

import base64
import json
import os
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from commands import STEPS, files_of, only_error, run_command
from small_run import SMALL

from jax_transformer.config import Config, override
from jax_transformer.data.vocabulary import train_vocabulary
from jax_transformer.runs.loading import AttentionMap, build_model
from jax_transformer.runs.run_dir import IMPORTED, Run, RunFolder
from jax_transformer.runs.saving import write_model
from jax_transformer.training.train_step import initial_params
from jax_transformer.viewer.attention_page import attention_page

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


def page_of(maps: dict[str, np.ndarray], **options) -> str:
    """The page of random weights."""
    given = {name: with_pieces(name, weights[0]) for name, weights in maps.items()}
    source, target = ("".join(pieces[:-1]).strip() for pieces in (SOURCE, TARGET))
    return attention_page(source, target, given, forced=False, facts="drawn at random", **options)


def with_pieces(name: str, weights: np.ndarray) -> AttentionMap:
    """Weights with the pieces on their axes; the decoder reads the target shifted right."""
    read = ["<s>", *TARGET[:-1]]
    queries = SOURCE if name.startswith("encoder") else read
    return AttentionMap(weights, queries, read if "decoder_" in name and "self" in name else SOURCE)


@pytest.fixture
def opened(browser):
    """open(path, color scheme) -> page; no page may have erred or requested another file."""
    contexts, wrong = [], []

    def open_page(path: Path, scheme: str = "light"):
        contexts.append(browser.new_context(offline=True, color_scheme=scheme))
        tab = contexts[-1].new_page()
        tab.on("request", lambda r: wrong.append(r.url) if r.url != path.as_uri() else None)
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
    words = [("<b>the</b>", "die"), ("@DATA@", "</dd>")]
    content = page_of(random_maps(), words=words)
    path = tmp_path / "page.html"
    path.write_text(content, encoding="utf-8")
    return path


def pick(tab, picker: str, index: int) -> None:
    tab.locator(f"#{picker} label").nth(index).click()


def texts(tab, side: str) -> list[str]:
    return tab.locator(f"#{side} .token .text").all_text_contents()


def shown_weights(tab, side: str) -> list[float]:
    return [float(text) for text in tab.locator(f"#{side} .weight").all_text_contents()]


def assert_all_shown(tab, maps, heads: int, layers: int) -> None:
    """Every view, layer, head and query: the numbers on hover are the model's."""
    for view, kind in enumerate(KINDS):
        pick(tab, "views", view)
        for layer in range(layers):
            pick(tab, "layers", layer)
            weights = np.asarray(maps[kind.format(layer)][0])
            for head, expected in enumerate([weights.mean(axis=0), *weights]):
                pick(tab, "heads", head)
                assert tab.locator("#heads label").count() == heads + 1
                for query in range(expected.shape[0]):
                    tab.locator("#queries .token").nth(query).hover()
                    np.testing.assert_allclose(
                        shown_weights(tab, "keys"), expected[query], atol=6e-4
                    )


@pytest.mark.slow
def test_hovering_shows_the_weights_of_the_picked_head_and_layer(opened, drawn):
    assert_all_shown(opened(drawn), random_maps(), HEADS, LAYERS)


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
    assert tab.locator("#words").inner_text() == "<b>the</b> = die · @DATA@ = </dd>"
    assert tab.locator("img, b").count() == 0


def test_the_keyboard_does_what_the_pointer_does(opened, drawn):
    tab = opened(drawn)
    tab.locator("#views input").nth(0).focus()
    tab.keyboard.press("ArrowRight")  # the decoder's own
    assert tab.locator("#views input:checked").get_attribute("value") == "1"
    assert tab.locator("#views input").nth(1).evaluate("input => input === document.activeElement")
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
    tab.locator("#keys .token").nth(0).hover()
    assert tab.locator("#keys .token.active").count() == 1


def test_the_page_opens_on_cross_attention_with_one_token_chosen(opened, drawn):
    tab = opened(drawn)
    assert tab.locator("#views label").nth(2).inner_text() == "cross-attention"
    assert tab.locator("#views input").nth(2).is_checked()
    expected = random_maps()["decoder_1/cross_attention"][0].mean(axis=0)[1]
    np.testing.assert_allclose(shown_weights(tab, "keys"), expected, atol=6e-4)
    assert "attends to" in tab.locator("#description").inner_text()
    assert tab.locator("#lines line").count() == sum(expected >= 0.02)


DEPTHS = [(4, 1), (2, 1), (12, 1), (1, 4), (1, 2)]


@pytest.mark.parametrize(("encoder", "decoder"), DEPTHS)
def test_a_page_has_every_layer_of_both_stacks_whatever_their_depths(encoder, decoder):
    maps = random_maps(3, encoder, decoder)
    content = page_of(maps)
    (encoded,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', content)
    data = json.loads(encoded)
    assert f"{encoder} + {decoder} layers" in data["facts"]
    for view, kind in zip(data["views"], KINDS, strict=True):
        expected = [maps[name] for name in maps if name in {kind.format(i) for i in range(12)}]
        assert len(view["layers"]) == len(expected)
        for shown, weights in zip(view["layers"], expected, strict=True):
            shares = np.frombuffer(base64.b64decode(shown), "<u2") / 65535
            np.testing.assert_allclose(shares, weights.ravel(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "decoder"), DEPTHS)
def test_the_picker_of_layers_has_those_of_the_chosen_attention(opened, tmp_path, encoder, decoder):
    maps = random_maps(3, encoder, decoder)
    path = tmp_path / "page.html"
    path.write_text(page_of(maps), encoding="utf-8")
    tab = opened(path)
    for view, layers in [(2, decoder), (0, encoder), (1, decoder), (0, encoder), (2, decoder)]:
        pick(tab, "views", view)
        assert tab.locator("#layers label").count() == layers
        pick(tab, "layers", layers - 1)
        weights = maps[KINDS[view].format(layers - 1)][0].mean(axis=0)
        tab.locator("#queries .token").nth(1).hover()
        np.testing.assert_allclose(shown_weights(tab, "keys"), weights[1], atol=6e-4)
    pick(tab, "views", 0)
    pick(tab, "layers", encoder - 1)
    pick(tab, "views", 2)  # perhaps of fewer layers
    assert tab.locator("#layers input:checked").get_attribute("value") == str(
        min(encoder, decoder) - 1
    )


def test_the_output_may_be_empty(opened, tmp_path):
    shapes = [(2, 2), (1, 1), (1, 2)]
    tokens = {2: [" a", "</s>"], 1: ["<s>"]}
    maps = {
        kind.format(0): AttentionMap(np.ones((1, q, k)) / k, tokens[q], tokens[k])
        for kind, (q, k) in zip(KINDS, shapes, strict=True)
    }
    path = tmp_path / "empty.html"
    path.write_text(attention_page("a", "", maps, forced=False, facts="random"), "utf-8")
    tab = opened(path)
    assert "attends to" in tab.locator("#description").inner_text()
    assert not tab.locator("#words").is_visible()


def test_a_telephone_has_room_for_the_lines_and_reads_of_nothing_that_it_does_not_show(
    opened, drawn
):
    tab = opened(drawn)
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.locator("#lines").bounding_box()["width"] >= 95
    words = tab.locator("body").inner_text()
    assert "→" not in words
    assert "arrow" not in words
    tab.set_viewport_size({"width": 1280, "height": 800})
    assert "→" in tab.locator("body").inner_text()


@pytest.mark.parametrize(("width", "height"), [(320, 480), (700, 500), (1200, 600)])
def test_a_long_sentence_fits_any_screen_and_pointing_at_it_moves_nothing(
    opened, tmp_path, width, height
):
    words = [*(f" {'Schifffahrt' * (1 + i % 2)}{i}" for i in range(29)), "</s>"]
    shape = (8, len(words), len(words))
    random = AttentionMap(np.random.default_rng(5).dirichlet(np.ones(30), shape[:2]), words, words)
    maps = {kind.format(layer): random for kind in KINDS for layer in range(3)}
    path = tmp_path / "long.html"
    text = "".join(words[:-1]).strip()
    path.write_text(attention_page(text, text, maps, forced=True, facts="random"), "utf-8")
    tab = opened(path)
    tab.set_viewport_size({"width": width, "height": height})
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
            sentence = tab.locator("#description")
            assert words[index].strip() in sentence.inner_text()
            box = sentence.bounding_box()
            assert 0 <= box["y"] < box["y"] + box["height"] <= before["y"]  # above, not over it
            held = token.locator(".weight").bounding_box()
            assert held["x"] >= 0
            assert held["x"] + held["width"] <= width
    assert widest <= width


def test_nothing_in_the_page_asks_for_anything_outside_of_it(drawn):
    content = drawn.read_text(encoding="utf-8")
    code = re.sub(r'<script type="application/json".*?</script>', "", content, flags=re.DOTALL)
    assert len(code) < len(content)
    assert set(re.findall(r"\w+://[^\s\"'`]*", code)) == {"http://www.w3.org/2000/svg"}  # a name
    assert not re.findall(r"\b(?:src|href)\s*=|@import|url\(|fetch\(|XMLHttp|import\(", code)


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
    run = Run("base", 1, override(Config(), *SMALL, "data.vocabularies=separate"), {}, IMPORTED)
    params = initial_params(build_model(run, source, target), jax.random.key(1))
    write_model(RunFolder(folder / "run"), run, source, target, jax.device_get(params), [1])
    return folder / "run"


def test_a_target_is_counted_in_tokens_of_its_own_vocabulary(separate, tmp_path):
    flags = [f"--workdir={separate}", "--text=the", f"--output={tmp_path / 'page.html'}"]
    run_command("visualize", *flags, "--target=teacher dictionary")  # 17 letters
    assert "found 12" in only_error("visualize", *flags, "--target=" + "the " * 12)


def test_only_a_page_is_replaced(separate, tmp_path):
    flags = [f"--workdir={separate}", "--text=the", "--target=the"]
    (text := tmp_path / "train.en").write_text("a line\n" * 999)
    (tmp_path / "link").symlink_to(text)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (text, *map(tmp_path.__truediv__, ("link", "folder", "pipe")), "/dev/null"):
        assert str(path) in only_error("visualize", *flags, f"--output={path}")
    for path in files_of(separate):
        assert str(path) in only_error("visualize", *flags, f"--output={path}")
    assert text.read_text() == "a line\n" * 999
    (separate / "attention.html").write_text("my own page")
    assert "attention.html" in only_error("visualize", *flags)
    page = tmp_path / "page.html"
    for _ in range(2):
        run_command("visualize", *flags, f"--output={page}")
        assert page.read_text(encoding="utf-8").endswith("</html>\n")


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """A copy of the trained run that these tests may write into."""
    workdir = tmp_path_factory.mktemp("visualize") / "copy"
    shutil.copytree(trained, workdir)
    return workdir


@pytest.mark.slow
def test_the_command_writes_the_models_own_translation_and_weights(run, opened):
    # Trained on some processors, the run's best output is blank, so a longer one counts more here.
    flags = f"--workdir={run}", "--checkpoint=last", "--set=decoding.alpha=4"
    described = run_command("visualize", *flags, "--text=a b  c d").stdout
    expected = run_command("translate", *flags, stdin=b"a b c d\n")
    translation, written = described.splitlines()
    assert translation == expected.stdout.strip()
    assert written == f"written to {run / 'attention.html'}"
    tab = opened(run / "attention.html")
    assert tab.locator("#source").text_content() == "a b c d"
    assert tab.locator("#target-name").text_content() == "translation"
    assert tab.locator("#target").text_content() == translation
    assert "last checkpoint, step 120" in tab.locator("#facts").text_content()
    assert_all_shown(tab, model_maps(run, "a b c d", translation), heads=2, layers=1)


@pytest.mark.slow
def test_a_given_translation_is_shown_instead_and_written_to_the_output(run, opened, tmp_path):
    output = tmp_path / "new" / "folder" / "page.html"
    flags = [f"--workdir={run}", "--text=a b", "--target=T S R", f"--output={output}"]
    run_command("visualize", *flags, "--checkpoint=last")
    tab = opened(output)
    assert tab.locator("#target-name").text_content() == "given"
    assert tab.locator("#target").text_content() == "T S R"
    pairs = tab.locator("#words").inner_text().split(" · ")
    assert sorted(pair[4:] for pair in pairs) == ["R", "S", "T"]
    assert {pair[:4] for pair in pairs} <= {"a = ", "b = "}
    assert_all_shown(tab, model_maps(run, "a b", "T S R"), heads=2, layers=1)


def model_maps(run: Path, source: str, target: str) -> dict:
    """What the last checkpoint attends to, by applying the module."""
    from jax_transformer.runs.loading import load

    trained = load(run, STEPS)
    ids = trained.vocabulary
    inputs = np.array([[ids.bos_id, *ids.encode(target)]])
    tokens = np.array([[*ids.encode(source), ids.eos_id]])
    _, sown = trained.module.apply(
        {"params": trained.params}, tokens, inputs, mutable=["intermediates"]
    )
    found = jax.device_get(sown["intermediates"])
    return {
        f"{stack}_0/{kind}": found[f"{stack}_0"][kind]["attention_weights"][0]
        for stack, kind in [
            ("encoder", "self_attention"),
            ("decoder", "self_attention"),
            ("decoder", "cross_attention"),
        ]
    }
