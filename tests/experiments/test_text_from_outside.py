"""Lines that people bring, through Python, the server and the command: one rule for all of them."""

import asyncio
import io
import re
import unicodedata

import pytest
import sentencepiece
from commands import run_command
from refusals import refusal
from small_run import write_run

import jax_transformer as jt

pytestmark = pytest.mark.slow

CHINESE = ["我喜欢GPU很好。", "好你。我很喜欢", "GPU也喜欢你", "Schüler über das Café"] * 9
SOURCE = "好你。我很"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "chinese"
    settings = "decoding.beam_size=4", "decoding.batch_tokens=192"
    return write_run(path, *settings, lines=CHINESE, pieces=80)


@pytest.fixture(scope="module")
def model(run):
    return jt.load(run)


def outputs(model, line=SOURCE, **options):
    """The texts of many samples of one line."""
    (found,) = model.translate([line], samples=64, seed=1, **options)
    return [each.text for each in found]


def test_a_prefix_of_latin_letters_may_be_followed_by_chinese_ones_but_stays_whole(model):
    after = {text[3:4] for text in outputs(model, prefixes=["GPU"])}
    assert after & {*"我好你很喜"}
    assert not any(letter.isascii() and letter.isalpha() for letter in after)
    assert outputs(model, prefixes=["GPU\u200b"]) == outputs(model, prefixes=["GPU"])


def test_alignments_have_a_unit_for_each_chinese_letter(model):
    (alignment,) = model.align(["我喜欢GPU"], ["好你 very好"])
    assert {target for _, target in alignment} == {0, 1, 2, 3}
    assert {source for source, _ in alignment} <= {0, 1, 2, 3}


def test_two_lines_in_one_item_are_refused_in_all_places(model):
    for line_break in ("\n", "\r\n", "\x85", "\u2028", "\v"):
        assert "line break" in refusal(model.translate, [f"好{line_break}你"])
    two = ["好\n你"]
    for call, arguments, options, name in (
        (model.translate, [two], {}, "lines[0]"),
        (model.translate, [["好"]], {"prefixes": two}, "prefixes[0]"),
        (model.score, [two, ["好"]], {}, "sources[0]"),
        (model.score, [["好"], two], {}, "targets[0]"),
        (model.align, [["好"], two], {}, "targets[0]"),
        (model.attention_maps, [two[0], "好"], {}, "source"),
    ):
        message = refusal(call, *arguments, **options)
        assert message.startswith(f"{name}: ")
        assert "line break" in message


def test_sentences_of_several_lines_are_translated_line_by_line(model):
    pytest.importorskip("sentencex", reason="splits: pip install -e '.[sentences]'")
    text = "好你。我很。\n\n喜欢。\u2028GPU."
    (found,) = model.translate([text], split_sentences=True, min_length=3)
    best = model.translate(["好你。", "我很。", "喜欢。", "GPU."], min_length=3)
    first, *others = re.split("\n\n|\u2028", found)
    assert others == best[2:]
    assert first in (best[0] + best[1], f"{best[0]} {best[1]}")
    assert model.translate([" \n\n"], split_sentences=True, n_best=1) == [[]]


def test_spaces_and_letters_in_other_forms_are_the_same_line(model):
    plain = "Schüler über das Café"
    odd = [
        plain.replace(" ", "\t"),
        plain.replace(" ", "\u3000 "),
        unicodedata.normalize("NFD", plain),
        f"\u00a0{plain}\n",
    ]
    assert model.translate(odd) == model.translate([plain] * 4)
    assert model.score(odd, odd) == pytest.approx(model.score([plain] * 4, [plain] * 4))
    prefix = unicodedata.normalize("NFD", "Schüler")
    assert outputs(model, prefixes=[prefix]) == outputs(model, prefixes=["Schüler"])
    assert model.translate(["\u200b", "\ufeff", "\0"]) == [""] * 3


def test_a_line_without_a_known_piece_is_named_in_a_warning(model, caplog):
    model.translate(["好", "\U0001f642", "a\U0001f642", " \U0001f642 \U0001f643"])
    (warning,) = (each for each in caplog.messages if "pieces" in each)
    assert warning.startswith("lines[1], lines[3]: ")


def test_the_server_and_the_command_read_lines_as_python_does(run, model):
    odd = "Schu\u0308ler\tu\u0308ber\u2028das\u00a0Cafe\u0301\n\u200b\nGPU\n"
    done = run_command("translate", f"--workdir={run}", stdin=odd.encode())
    expected = model.translate(["Schüler über das Café", "", "GPU"])
    assert done.stdout == "".join(f"{line}\n" for line in expected)
    pytest.importorskip("fastapi", reason="serves: pip install -e '.[serve]'")
    from jax_transformer.serving.schemas import TranslateRequest
    from jax_transformer.serving.service import Service

    service = Service(model, model.config)

    def answered(**request):
        found = asyncio.run(service.outputs(TranslateRequest(**request)))
        return [line[0].text if line else "" for line in found]

    try:
        odd = "Schu\u0308ler\tu\u0308ber\u00a0das Cafe\u0301"
        assert answered(lines=[odd, "\u200b"]) == [*model.translate(["Schüler über das Café"]), ""]
        for request in ({"lines": ["a", "b\nc"]}, {"lines": ["a", "b"], "prefixes": ["", "a\nb"]}):
            with pytest.raises(jt.InputError, match=r"\[1\]: .*line break"):
                answered(**request)
    finally:
        service.batcher.close()


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.release
def test_pieces_of_bytes_are_read_as_letters_in_prefixes_and_forbidden_phrases(
    tmp_path, model_type
):
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["un caf noir", "le caf", "caf au lait"] * 20),
        model_writer=content,
        model_type=model_type,
        vocab_size=300,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = jt.load(write_run(tmp_path / "run", vocabulary=content.getvalue()))
    options = {"prefixes": ["caf"], "inside_word": True, "temperature": 0.3}
    texts = outputs(model, "le caf", **options)
    assert any(text != "caf" and text[3].isalpha() for text in texts)  # among them bytes
    for text in outputs(model, "le caf", prefixes=["caf"]):
        assert text == "caf" or not text[3].isalnum()
    (best,) = model.translate(["le caf"], n_best=1, prefixes=["café"], inside_word=True)
    assert best[0].text.startswith("café")
    for text in outputs(model, "le caf", without=["\u00e9"], temperature=2.0):
        assert not re.search(r"(?<!\w)\u00e9(?!\w)", text)
