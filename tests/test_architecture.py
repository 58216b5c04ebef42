"""The house rules: who may import whom, and what importing the package may load."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "jax_transformer"

# A pure file imports only files of its own row and of rows above it.
PURE_ROWS = [
    {"errors"},
    {"config", "optimizer", "products", "search", "trees"},
    {"bracketing", "layers", "loss", "parsing"},
    {"attention"},
    {"model", "tree_automaton"},
    {"export", "training", "tree_search"},
    {"translation"},
    {"counting", "shelf"},
]
PURE = set().union(*PURE_ROWS)
EFFECTS = {
    "batch_shapes",
    "batching",
    "cached_sets",
    "checkpoints",
    "corpora",
    "corpus",
    "demo_constructions",
    "demo_corpus",
    "demo_grammar",
    "demo_lexicon",
    "demo_trees",
    "devices",
    "encoding",
    "evalb",
    "evalb_brackets",
    "evalb_parameters",
    "kept",
    "machine",
    "metrics",
    "packing",
    "paper_bleu",
    "parser",
    "preparation",
    "run_folder",
    "scorer",
    "symbols",
    "token_store",
    "translator",
    "treebank",
    "treebank_corpus",
    "vocabulary",
    "wmt",
}
# What a pure file may import beside the package and the standard library.
PURE_LIBRARIES = {"flax", "jax", "jaxtyping", "numpy", "optax"}
# Standard modules through which a file could reach files, devices or clocks.
EFFECTFUL_MODULES = {"io", "logging", "os", "pathlib", "shutil", "subprocess", "tempfile", "time"}
LEAVES = {"attention", "layers", "loss", "optimizer", "products", "search"}


def imports(path: Path) -> set[str]:
    """Full names of the modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
            if node.module == "jax_transformer":
                names |= {f"jax_transformer.{alias.name}" for alias in node.names}
    return names


def own(path: Path) -> set[str]:
    """Files of the package that a file imports."""
    names = {name.split(".")[1] for name in imports(path) if name.startswith("jax_transformer.")}
    return names & {file.stem for file in PACKAGE.glob("*.py")}


def test_every_file_of_the_package_is_either_pure_or_an_effect():
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert files == PURE | EFFECTS
    assert not PURE & EFFECTS


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_files_import_downward_only_and_no_effects(name):
    row = next(i for i, names in enumerate(PURE_ROWS) if name in names)
    allowed = set().union(*PURE_ROWS[: row + 1])
    assert own(PACKAGE / f"{name}.py") <= allowed
    tops = {module.split(".")[0] for module in imports(PACKAGE / f"{name}.py")}
    foreign = tops - set(sys.stdlib_module_names) - {"jax_transformer"}
    assert foreign <= PURE_LIBRARIES
    assert not tops & EFFECTFUL_MODULES


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_the_package_never_imports_the_doors(path):
    assert not {name for name in imports(path) if name.split(".")[0] in ("experiments", "absl")}


def test_only_model_opens_the_model_settings():
    for leaf in LEAVES:
        assert "config" not in own(PACKAGE / f"{leaf}.py"), leaf


def test_only_the_devices_file_names_pmap_and_devices():
    for path in sorted(PACKAGE.glob("*.py")) + sorted((ROOT / "experiments").glob("*.py")):
        if path.stem == "devices":
            continue
        attributes = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Attribute)
        }
        named = attributes & {"pmap", "psum", "local_devices", "axis_index", "device_put"}
        assert not named, f"{path.name} names {named}"


def test_masks_are_made_in_the_attention_file_alone():
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        made = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name.endswith("_mask")
        }
        assert path.stem in ("attention", "layers") or not made, path
        assert path.stem != "layers" or made == {"dropout_mask"}


def test_importing_the_package_loads_neither_tensorflow_nor_an_effect():
    code = "import sys, jax_transformer.shelf; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert not loaded & {"tensorflow", "tensorflow_datasets", "orbax", "sentencepiece", "sacrebleu"}
    assert not {name for name in EFFECTS if f"jax_transformer.{name}" in loaded}


def test_importing_a_door_loads_no_jax():
    """It takes a second; --help and what absl says of a flag are told at once."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    doors = set(re.findall(r"python -m experiments\.(\w+)", readme))
    assert len(doors) > 8
    imports = "; ".join(f"import experiments.{door}" for door in sorted(doors))
    code = f"import sys; {imports}; print({{'jax', 'flax', 'orbax'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert run.stdout == "set()\n", run.stderr


def test_training_loads_no_pytorch_and_leaves_it_to_be_loaded(tmp_path):
    """Where it is installed, tensorboardX would: two seconds and 180 MB."""
    (tmp_path / "torch.py").write_text("print('loaded')\n", encoding="utf-8")
    loaded = "experiments.training_loop, experiments.tensorboard_events"
    code = f"import {loaded}; print('now'); import torch"
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment
    )
    assert run.stdout == "now\nloaded\n", run.stderr


def test_every_public_thing_has_a_docstring_and_every_file_a_first_line():
    for path in sorted(PACKAGE.glob("*.py")) + sorted((ROOT / "experiments").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert ast.get_docstring(tree), path
        public = [node for node in tree.body if not getattr(node, "name", "_").startswith("_")]
        classes = [node for node in public if isinstance(node, ast.ClassDef)]
        for node in [*public, *(inner for each in classes for inner in each.body)]:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{path.name}: {node.name}"
