"""experiments.export on a trained run: each folder run as its README.md says, and mistakes."""

import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from commands import only_error, run_command
from letters import LETTERS, letters
from readers import READERS, padded

from jax_transformer.config import DecodingConfig
from jax_transformer.data.vocabularies import load_vocabulary
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.runs.load import load

EXPORT = "writes and reads exports: pip install -e '.[export]'"
TORCH = "reads the export: pip install -e '.[torch]'"
pytest.importorskip("ctranslate2", reason=EXPORT)
pytest.importorskip("safetensors", reason=EXPORT)

SOURCES, TARGETS = letters(40, seed=11)
FORMATS = [*READERS, "ctranslate2-int8"]


@pytest.fixture(scope="module")
def exported(trained, tmp_path_factory):
    """A folder for each format, made by the command."""
    folder = tmp_path_factory.mktemp("exported")
    commands = {
        name: [
            *("export", f"--workdir={trained}", f"--output={folder / name}"),
            f"--format={name.removesuffix('-int8')}",
            *["--quantization=int8"] * name.endswith("-int8"),
        ]
        for name in FORMATS
    }
    for name, command in commands.items():
        done = run_command(*command)
        assert f"written to {folder / name};" in done.stdout
        assert done.stderr == f"export      writing {name.removesuffix('-int8')} ...\n"
    assert {path.name for path in folder.iterdir()} == set(FORMATS)
    return folder


@pytest.fixture(scope="module")
def model(trained):
    """The run, restored by our own code."""
    return load(trained)


def with_end(model, lines):
    """Token ids of each line, EOS included."""
    return [[*ids, model.vocabulary.eos_id] for ids in model.vocabulary.encode_batch(lines)]


def greedy_tokens(model, sources):
    """Our own greedy outputs, EOS included."""
    decoding = DecodingConfig(beam_size=1, max_extra_length=2)
    ids = {"bos_id": model.vocabulary.bos_id, "eos_id": model.vocabulary.eos_id}
    search = jax.jit(
        lambda params, source: translate(model.module, params, source, decoding, **ids).tokens
    )
    rows = np.asarray(search(model.params, padded(sources)))[:, 0].tolist()
    return [row[: row.index(model.vocabulary.eos_id) + 1] for row in rows]


@pytest.fixture(scope="module")
def ours(model):
    """Token ids of both sides, greedy token ids and log P of the targets, by our own model."""
    sources, targets = with_end(model, SOURCES), with_end(model, TARGETS)
    found = log_probabilities(
        model.module, model.params, padded(sources), padded(targets), bos_id=1
    )
    rows = zip(np.asarray(found), targets, strict=True)
    log_probs = [row[: len(ids)] for row, ids in rows]
    return sources, targets, greedy_tokens(model, sources), log_probs


def ended_by_itself(source, tokens):
    """Whether an output did not just stop at the longest length, where programs differ."""
    return len(tokens) < len(source) + 2


def test_int8_is_smaller_and_gives_nearly_the_same_log_p(exported, ours):
    sources, targets, _, log_probs = ours
    sizes = [
        (exported / name / "model.bin").stat().st_size
        for name in ("ctranslate2-int8", "ctranslate2")
    ]
    assert sizes[0] < sizes[1]
    reader = READERS["ctranslate2"](exported / "ctranslate2-int8")
    away = np.concatenate(reader.log_probabilities(sources, targets)) - np.concatenate(log_probs)
    # 0.010 with two versions of JAX, which train different models. Whole outputs are no measure:
    # some of these models end most of them at once, and then rounding decides.
    assert 1e-4 < np.abs(away).mean() < 0.05


NEEDED = {"marian": ["torch", "transformers"]}


def lines_that_end(model, count, pieces):
    """Lines of `pieces` letters whose translations the model ends by itself."""
    random = np.random.default_rng(5)
    lines = [" ".join(random.choice(list(LETTERS), pieces)) for _ in range(30)]
    sources = with_end(model, lines)
    pairs = zip(lines, sources, greedy_tokens(model, sources), strict=True)
    usable = [line for line, source, tokens in pairs if ended_by_itself(source, tokens)]
    assert len(usable) >= count
    return usable[:count]


def run_readme(folder, *, greedy=False):
    """Run the code of a folder's README.md in the folder; its standard output."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "$" not in readme
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    if greedy:  # as the README says
        code = re.sub(r"beam_size=\d+", "beam_size=1", code)
        code = code.replace("generate(**batch)", "generate(**batch, num_beams=1)")
    code += "import sys\nassert not {'jax', 'flax', 'jax_transformer'} & set(sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("target", "patience"), [("ctranslate2", 1), ("marian", 0)])
@pytest.mark.release
def test_the_code_in_each_readme_has_the_models_own_search(target, patience, fluent, tmp_path):
    for module in NEEDED.get(target, []):
        pytest.importorskip(module, reason=TORCH)
    folder = tmp_path / target
    run_command("export", f"--workdir={fluent}", f"--format={target}", f"--output={folder}")
    text = "\n".join(SOURCES)
    (folder / "source.txt").write_text(text, encoding="utf-8")
    own = ["decoding.length_penalty=length", f"decoding.patience={patience}"]  # as it divides
    flags = [f"--workdir={fluent}", *(f"--set={setting}" for setting in own)]
    expected = run_command("translate", *flags, stdin=text.encode()).stdout
    assert run_readme(folder) == expected
    greedy = run_command("translate", *flags, "--set=decoding.beam_size=1", stdin=text.encode())
    assert greedy.stdout != expected  # or the search would not show


@pytest.mark.slow
@pytest.mark.parametrize("target", ["ctranslate2", "marian"])
def test_the_code_in_each_readme_translates_greedily_as_we_do(target, exported, trained, model):
    for module in NEEDED.get(target, []):
        pytest.importorskip(module, reason=TORCH)
    folder = exported / target
    cut = lines_that_end(model, 2, pieces=7)
    lines = [*lines_that_end(model, 4, pieces=4), "", cut[0], f"{cut[1]} a b c"]
    text = "\n".join(lines)  # the last line without a newline
    (folder / "source.txt").write_text(text, encoding="utf-8")
    flags = [f"--workdir={trained}", "--set=decoding.beam_size=1"]
    expected = run_command("translate", *flags, stdin=text.encode()).stdout
    assert run_readme(folder, greedy=True) == expected


def test_the_code_in_the_readme_of_safetensors_lists_every_array(exported, model):
    arrays = flat_arrays(model.params)
    expected = [f"{name} {array.shape}" for name, array in sorted(arrays.items())]
    assert run_readme(exported / "safetensors").splitlines() == expected


def test_marian_s_tokenizer_gives_the_ids_of_our_vocabulary(exported, trained):
    pytest.importorskip("torch", reason="transformers needs it: pip install -e '.[torch]'")
    transformers = pytest.importorskip("transformers", reason="pip install -e '.[torch]'")
    tokenizer = transformers.MarianTokenizer.from_pretrained(exported / "marian")
    vocabulary = load_vocabulary(trained / "vocabulary.model")
    for line in [
        "a b c",
        "A  B\tc",
        "a </s> b",
        "<pad> <s>",
        "a \u6f22\u5b57 b",
        " x y ",
        "zz\u2028z",
    ]:
        assert tokenizer(line).input_ids == [*vocabulary.encode(line), vocabulary.eos_id], line
    ids = vocabulary.encode("A B C D")
    assert tokenizer.decode([*ids, 2, 0, 0], skip_special_tokens=True) == "A B C D"
    assert tokenizer("a b c d e f g h i", truncation=True).input_ids[7:] == [2]


def test_a_missing_library_is_one_line_with_the_command_that_brings_it(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    out = f"--output={tmp_path / 'out'}"
    error = only_error("export", f"--workdir={trained}", "--format=marian", out)
    assert "--format=marian: expected the package safetensors, found none" in error
    assert "pip install -e '.[export]'" in error
    assert not (tmp_path / "out").exists()
