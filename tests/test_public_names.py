"""`import jax_transformer as jt`: quick, with every public name, and a help page that is a tour."""

import ast
import importlib
import pydoc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import jax_transformer
from jax_transformer.config import Config

jt: Any = jax_transformer
ROOT = Path(__file__).parents[1]
QUICK = """
import sys
import jax_transformer as jt
assert issubclass(jt.InputError, ValueError)
config = jt.override(jt.experiment("table3-A-h1"), "training.steps=5")
assert list(jt.experiments()) and isinstance(config, jt.Config)
print([name for name in ("jax", "flax", "numpy", "experiments") if name in sys.modules])
jt.load, jt.Transformer
print([name for name in ("tensorflow", "tensorflow_datasets", "orbax", "torch", "experiments")
       if name in sys.modules])
"""


def test_names_are_imported_when_they_are_used():
    done = subprocess.run(
        [sys.executable, "-c", QUICK], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n[]\n"


def test_type_checkers_see_the_names_that_python_finds():
    source = Path(jt.__file__).read_text(encoding="utf-8")
    (static,) = (part for part in ast.parse(source).body if isinstance(part, ast.If))
    seen = {}
    for part in static.body:
        if isinstance(part, ast.ImportFrom):
            module = importlib.import_module(str(part.module))
            seen |= {alias.name: getattr(module, alias.name) for alias in part.names}
    assert {name for name in dir(jt) if name[0] != "_"} == seen.keys()
    assert all(getattr(jt, name) is value for name, value in seen.items())
    exported = ast.literal_eval(static.body[-1].value)  # pyright: ignore[reportAttributeAccessIssue]
    assert exported == sorted(seen)


def test_a_name_that_is_not_there_is_an_attribute_error_with_a_hint():
    with pytest.raises(AttributeError, match="no attribute 'experimnt'") as caught:
        _ = jt.experimnt
    assert (caught.value.name, caught.value.obj) == ("experimnt", jt)


def test_help_is_a_tour_of_a_page():
    page = pydoc.plain(pydoc.render_doc(jt))
    assert page.count("\n") <= 70
    assert "jt.load(" in page
    for name in ("EncoderLayer", "DecoderLayer", "MultiHeadAttention", "FeedForward", "AddNorm"):
        assert f"jt.{name}" in page


def test_every_experiment_is_found_by_name():
    names = jt.experiments()
    assert {"demo", "base", "table3-A-h1", "wsj"} <= names.keys()
    assert all(isinstance(jt.experiment(name), Config) for name in names)
    with pytest.raises(jt.InputError, match="did you mean wmt14-en-de-base or wmt14-en-de-big or"):
        jt.experiment("wmt14")


def test_the_version_is_the_same_everywhere():
    citation, changes = (ROOT / name for name in ("CITATION.cff", "CHANGELOG.md"))
    cited = re.findall(r"^(?:version|date-released): (.*)$", citation.read_text("utf-8"), re.M)
    newest = re.search(r"^## (\S+) \((.*)\)$", changes.read_text("utf-8"), re.MULTILINE)
    assert newest
    assert [jt.__version__, newest[2]] == cited
    assert newest[1] == jt.__version__
    stable = "Development Status :: 5 - Production/Stable" in (ROOT / "pyproject.toml").read_text()
    assert stable == (int(jt.__version__.split(".")[0]) >= 1)
