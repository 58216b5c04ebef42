"""experiments.export: each folder run as its README.md says, and read by the program it is for."""

import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
from commands import only_error, run_command
from letters import letters
from readers import READERS, padded
from small_run import write_run

from jax_transformer.decoding.generate import log_probabilities
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.runs.load import load

EXPORT = "writes and reads exports: pip install -e '.[export]'"
TORCH = "reads the export: pip install -e '.[torch]'"
pytest.importorskip("ctranslate2", reason=EXPORT)
safetensors = pytest.importorskip("safetensors.numpy", reason=EXPORT)

SOURCES, TARGETS = letters(40, seed=11)


def export(run, name, folder):
    """The folder of a format, made by the command."""
    form = name.removesuffix("-int8")
    flags = [f"--workdir={run}", f"--output={folder / name}", f"--format={form}"]
    done = run_command("export", *flags, *["--quantization=int8"] * name.endswith("-int8"))
    assert f"written to {folder / name};" in done.stdout
    assert done.stderr == f"export      writing {form} ...\n"
    return folder / name


@pytest.fixture(scope="module")
def model(trained):
    """The run, restored by our own code."""
    return load(trained)


def test_int8_is_smaller_and_gives_nearly_the_same_log_p(trained, model, tmp_path):
    sides = [
        [[*ids, model.vocabulary.eos_id] for ids in model.vocabulary.encode_batch(lines)]
        for lines in (SOURCES, TARGETS)
    ]
    found = log_probabilities(model.module, model.params, *map(padded, sides), bos_id=1)
    ours = [row[: len(ids)] for row, ids in zip(np.asarray(found), sides[1], strict=True)]
    whole, int8 = (export(trained, f"ctranslate2{end}", tmp_path) for end in ("", "-int8"))
    assert (int8 / "model.bin").stat().st_size < (whole / "model.bin").stat().st_size
    reader = READERS["ctranslate2"](int8)
    away = np.concatenate(reader.log_probabilities(*sides)) - np.concatenate(ours)
    assert 1e-4 < np.abs(away).mean() < 0.05


@pytest.mark.release
@pytest.mark.parametrize("name", ["ctranslate2", "ctranslate2-int8", "marian"])
def test_the_method_writes_what_the_command_writes(name, trained, model, tmp_path):
    form, _, quantization = name.partition("-")
    model.export(form, tmp_path / "method", quantization=quantization or None)
    export(trained, name, tmp_path)
    found, expected = (
        {path.name: path.read_bytes() for path in (tmp_path / own).iterdir()}
        for own in ("method", name)
    )
    assert found == expected


def test_what_a_killed_export_left_in_an_empty_folder_is_no_obstacle(tmp_path):
    run, output = write_run(tmp_path / "run"), tmp_path / "output"
    process = subprocess.Popen(["true"])
    process.wait()  # its number is nobody's now
    (output / f"output.{process.pid}.partial").mkdir(parents=True)
    run_command("export", f"--workdir={run}", f"--output={output}", "--format=safetensors")
    assert not list(output.glob("*.partial"))


def test_the_checkpoint_that_is_asked_for_is_exported(small_run, tmp_path):
    flags = [f"--workdir={small_run}", f"--output={tmp_path / 'one'}", "--format=safetensors"]
    run_command("export", *flags, "--checkpoint=1")
    (file,) = (tmp_path / "one").glob("*.safetensors")
    arrays = safetensors.load_file(file)
    for name, array in flat_arrays(load(small_run, "1").params).items():
        np.testing.assert_array_equal(arrays[name], array)
    last = flat_arrays(load(small_run, "last").params)
    assert any((arrays[name] != last[name]).any() for name in arrays)


def run_readme(folder, changes=()):
    """Run the code of a folder's README.md in the folder, changed as it says; return its output."""
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "$" not in readme
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    code += "import sys\nassert not {'jax', 'flax', 'jax_transformer'} & set(sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


GREEDY = {
    "ctranslate2": ("beam_size=4", "beam_size=1"),
    "marian": ("generate(**batch)", "generate(**batch, num_beams=1)"),
}


@pytest.mark.release
@pytest.mark.parametrize(("target", "patience"), [("ctranslate2", 1), ("marian", 0)])
def test_the_code_in_each_readme_has_the_models_own_search(target, patience, fluent, tmp_path):
    if target == "marian":
        for module in ("torch", "transformers"):
            pytest.importorskip(module, reason=TORCH)
    model, folder = load(fluent), export(fluent, target, tmp_path)
    # Two lines are cut; of an output that just stops at the longest length programs differ.
    long = [" ".join(pair) for pair in itertools.pairwise(SOURCES)]
    found = model.translate([line[:13] for line in long], n_best=1)
    cut = [line for line, (best,) in zip(long, found, strict=True) if best.num_tokens < 9]
    text = "\n".join([*SOURCES, "", *cut[:2]])  # the last line without a newline
    (folder / "source.txt").write_text(text, encoding="utf-8")
    own = ["decoding.length_penalty=length", f"decoding.patience={patience}"]  # as it divides
    flags = [f"--workdir={fluent}", *(f"--set={setting}" for setting in own)]
    expected = run_command("translate", *flags, stdin=text.encode()).stdout
    assert run_readme(folder) == expected
    greedy = run_command("translate", *flags, "--set=decoding.beam_size=1", stdin=text.encode())
    assert run_readme(folder, [GREEDY[target]]) == greedy.stdout


def test_the_code_in_the_readme_of_safetensors_lists_every_array(trained, model, tmp_path):
    arrays = flat_arrays(model.params)
    expected = [f"{name} {array.shape}" for name, array in sorted(arrays.items())]
    assert run_readme(export(trained, "safetensors", tmp_path)).splitlines() == expected


@pytest.mark.release
def test_marian_s_tokenizer_gives_the_ids_of_our_vocabulary(fluent, tmp_path):
    pytest.importorskip("torch", reason="transformers needs it: pip install -e '.[torch]'")
    transformers = pytest.importorskip("transformers", reason="pip install -e '.[torch]'")
    tokenizer = transformers.MarianTokenizer.from_pretrained(export(fluent, "marian", tmp_path))
    ours = load(fluent).vocabulary
    for line in ["a b c", "A  B c", "a </s> b", "<pad> <s>", "\u6f22\u5b57 b", " x "]:
        assert tokenizer(line).input_ids == [*ours.encode(line), ours.eos_id], line
    ids = ours.encode("A B C D")
    assert tokenizer.decode([*ids, 2, 0, 0], skip_special_tokens=True) == "A B C D"
    assert tokenizer("a b c d e f g h i", truncation=True).input_ids[7:] == [2]


def test_a_missing_library_is_one_line_with_the_command_that_brings_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    out, run = f"--output={tmp_path / 'out'}", write_run(tmp_path / "run")
    error = only_error("export", f"--workdir={run}", "--format=marian", out)
    assert "--format=marian: expected the package safetensors, found none" in error
    assert "pip install 'PATH[export]'" in error
    assert not (tmp_path / "out").exists()
