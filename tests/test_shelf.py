"""What `from jax_transformer import ...` gives: each name with an example that runs."""

import ast
import doctest
import re
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jax_transformer

ROOT = Path(__file__).parents[1]


def examples_of(name: str) -> doctest.DocTest | None:
    """The examples in a name's own docstring, with what a notebook has at hand: the shelf."""
    shelf = {each: getattr(jax_transformer, each) for each in jax_transformer.__all__}
    own = getattr(jax_transformer, name).__doc__ or ""
    at_hand = {**shelf, "jax": jax, "jnp": jnp}
    test = doctest.DocTestParser().get_doctest(own, at_hand, name, None, None)
    return test if test.examples else None


@pytest.mark.parametrize("name", jax_transformer.__all__)
def test_each_name_on_the_shelf_has_an_example_that_does_what_it_says(name):
    test = examples_of(name)
    assert test is not None, f"{name} has no >>> example in its docstring"
    assert any(example.want for example in test.examples), f"{name}: no result is shown"
    said: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=said.append)
    assert not failed, "".join(said)


def test_every_example_of_a_pure_file_is_on_the_shelf():
    """One that is not would never be run."""
    for path in sorted((ROOT / "jax_transformer").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Module):
                name = getattr(node, "name", path.stem)
                if ">>>" in (ast.get_docstring(node) or ""):
                    assert name in jax_transformer.__all__, f"{path.name}: {name}"


def test_the_shelf_is_in_order_and_holds_no_more_than_it_says():
    names = jax_transformer.__all__
    assert names == sorted(set(names))
    code = "from jax_transformer import shelf; print(*[n for n in vars(shelf) if n[0] != '_'])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = {path.stem for path in (ROOT / "jax_transformer").glob("*.py")}
    assert set(run.stdout.split()) - files == set(names)
    assert [name for name in dir(jax_transformer) if name[0] != "_"] == names
    assert jax_transformer.corpus.__name__ == "jax_transformer.corpus"
    with pytest.raises(AttributeError, match="'jax_transformer' has no attribute 'beam_serach'"):
        _ = jax_transformer.beam_serach


def test_the_readmes_python_example_runs():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    space: dict = {}
    exec(compile(code, "README.md", "exec"), space)
    assert space["logits"].shape == (1, 3, 100)
    assert space["maps"]["decoder_1/cross_attention"].shape == (1, 8, 3, 4)
