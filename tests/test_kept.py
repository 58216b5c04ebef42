"""Kept functions: found again for what they are made of and nothing else, without a trace."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_transformer import kept
from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.decoding.generate import translate
from jax_transformer.kept import KeptFunction, NotDescribedError, description, keep_in
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import make_train_step

CONFIG = ModelConfig(num_layers=1, d_model=8, d_ff=16, num_heads=2, d_k=4, d_v=4)
TRACED = []  # by functions that do not close over it


def scaling(factor, offset=0.0):
    def scaled(x, rows):
        TRACED.append(rows.shape)
        return (x + rows) * factor + offset

    return scaled


@pytest.fixture
def folder(tmp_path):
    TRACED.clear()
    keep_in(tmp_path, "this machine")
    yield tmp_path
    keep_in(None)


def result(function, rows=4, **options):
    """Of a new KeptFunction, as a new process has it."""
    found = KeptFunction(function, jax.devices()[0], **options)
    return np.asarray(found(jnp.float32(1), np.arange(rows, dtype=np.float32))).tolist()


def files(folder):
    return sorted(folder.iterdir())


def test_a_function_that_is_kept_is_not_traced_again(folder):
    for _ in range(3):
        assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    assert TRACED == [(4,)]
    (path,) = files(folder)
    assert path.name.startswith("scaling_locals_scaled-")
    assert result(scaling(2.0), rows=2) == [2.0, 4.0]
    assert TRACED == [(4,), (2,)]
    assert len(files(folder)) == 2


def test_one_object_compiles_each_shape_once_and_keeps_donating(folder):
    function = KeptFunction(lambda state, rows: state + rows, jax.devices()[0], donate_argnums=0)
    for _ in range(2):  # new, then from memory
        state = jnp.ones(3)
        assert function(state, np.ones(3, np.float32)).tolist() == [2.0] * 3
        assert state.is_deleted()
    assert function.compiled(jnp.ones(3), np.ones(3, np.float32)) is function.compiled(
        jnp.zeros(3), np.zeros(3, np.float32)
    )
    again = KeptFunction(lambda state, rows: state + rows, jax.devices()[0], donate_argnums=0)
    state = jnp.ones(3)
    again(state, np.ones(3, np.float32))
    assert state.is_deleted()


@pytest.mark.parametrize(
    "change",
    [
        lambda monkeypatch: monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false"),
        lambda monkeypatch: monkeypatch.setattr(sys, "version", "4.0"),
        lambda monkeypatch: monkeypatch.setattr(kept, "_code_of", lambda _: "newer"),
        lambda _: keep_in(kept._kept["folder"], "another machine"),
        lambda _: flax.config.update("flax_fix_rng_separator", True),
    ],
)
def test_what_a_function_depends_on_beside_itself_makes_another(folder, monkeypatch, change):
    result(scaling(2.0))
    change(monkeypatch)
    assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    assert len(TRACED) == len(files(folder)) == 2
    flax.config.update("flax_fix_rng_separator", False)


def test_settings_and_options_of_jax_make_another(folder):
    result(scaling(2.0))
    jax.config.update("jax_default_matmul_precision", "float32")
    try:
        result(scaling(2.0))
    finally:
        jax.config.update("jax_default_matmul_precision", None)
    result(scaling(2.0), donate_argnums=1)
    result(scaling(2.0), compiler_options={"xla_cpu_enable_fast_math": False})
    assert len(TRACED) == len(files(folder)) == 4


def test_what_is_closed_over_makes_another(folder):
    array = np.arange(4, dtype=np.float32)
    factors = [2.0, 3.0, np.float32(2.0), array, array + 1, jnp.asarray(array)]
    for factor in factors:
        expected = ((1 + np.arange(4)) * np.asarray(factor)).tolist()
        assert result(scaling(factor)) == result(scaling(factor)) == expected
    assert len(TRACED) == len(factors)  # NumPy's and JAX's arrays too, which compute differently
    assert result(scaling(2.0, offset=1.0)) == [3.0, 5.0, 7.0, 9.0]
    # Both on one line, and of one name.
    one, other = (lambda x, rows: x + rows), (lambda x, rows: x - rows)
    assert (result(one), result(other)) == ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, -1.0, -2.0])


def test_arguments_that_differ_make_another_in_one_object_too(folder):
    function = KeptFunction(scaling(jnp.asarray(2)), jax.devices()[0])
    rows = np.arange(2, dtype=np.float32)
    weak = jax.jit(lambda: 1.0)()
    assert weak.weak_type
    for x in (jnp.float32(1), jnp.int32(1), weak, np.float32(1)):
        assert function(x, rows).tolist() == [2.0, 4.0]
    assert len(TRACED) == len(files(folder)) == 3  # a number is the same in NumPy
    jax.config.update("jax_default_matmul_precision", "float32")
    try:
        function(weak, rows)
    finally:
        jax.config.update("jax_default_matmul_precision", None)
    assert len(TRACED) == 4


def test_two_named_tuples_of_one_name_are_not_taken_for_each_other(folder):
    def adding(pair, rows):
        return pair.first + rows

    kinds = [NamedTuple("Pair", [("first", Any)]) for _ in range(2)]
    for kind in (*kinds, kinds[0]):
        found = KeptFunction(adding, jax.devices()[0])(kind(np.float32(1)), np.zeros(2, np.float32))
        assert found.tolist() == [1.0, 1.0]


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "a bit":
        content[len(content) // 2] ^= 1
    elif how == "something else":
        content = bytearray(kept._digest(b"nothing") + b"nothing")
    path.write_bytes(content[: {"half": len(content) // 2, "none": 0}.get(how)])


@pytest.mark.parametrize("how", ["a bit", "half", "none", "something else"])
def test_a_damaged_file_is_written_again(folder, how):
    result(scaling(2.0))
    (path,) = files(folder)
    damage(path, how)
    for _ in range(2):
        assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    assert files(folder) == [path]
    assert len(TRACED) == 2


def test_a_place_that_is_gone_or_taken_keeps_nothing_and_fails_nothing(folder, tmp_path):
    keep_in(tmp_path / "gone")
    assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    assert not (tmp_path / "gone").exists()
    keep_in(tmp_path)
    result(scaling(2.0))
    (path,) = files(folder)
    path.unlink()
    path.mkdir()
    (path / "something").touch()
    assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    assert [*path.iterdir()] == [path / "something"]


def test_what_was_not_used_for_long_is_removed(folder):
    result(scaling(2.0))
    result(scaling(3.0))
    other = folder / "other"
    other.touch()
    for path in files(folder):
        os.utime(path, (0, 0))
    result(scaling(3.0))
    keep_in(folder)
    assert len(files(folder)) == 2
    assert other.exists()


def test_what_jax_cannot_serialize_is_compiled_and_not_kept(folder):
    def calling_back(x, rows):
        return jax.pure_callback(lambda y: y * 2, rows, x + rows)

    assert result(calling_back) == [2.0, 4.0, 6.0, 8.0]
    assert not files(folder)


def test_looking_for_a_fault_jax_runs_the_function_itself(folder):
    with jax.disable_jit():
        assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="invalid value"):
        result(scaling(float("nan")))
    assert not files(folder)


def test_nothing_is_kept_where_nobody_asked(folder, tmp_path):
    keep_in(None)
    assert result(scaling(2.0)) == [2.0, 4.0, 6.0, 8.0]
    assert not files(tmp_path)


def test_what_cannot_be_described_is_compiled_and_not_kept(folder):
    for _ in range(2):
        assert result(scaling(SimpleArray(2.0))) == [2.0, 4.0, 6.0, 8.0]
    assert len(TRACED) == 2
    assert not files(folder)


class SimpleArray:
    """A number in an object of nobody knows what."""

    def __init__(self, value):
        self.value = value

    def __rmul__(self, other):
        return other * self.value


MODEL = Transformer(CONFIG, 20, 0)


def variants():
    """Functions of which no two are alike."""
    wider = Transformer(ModelConfig(num_layers=1, d_model=16), 20, 0)
    adam = functools.partial(adam_with_warmup, 8)
    for model, optimizer, smoothing, parts in [
        (MODEL, adam(10), 0.1, 1),
        (wider, adam(10), 0.1, 1),
        (Transformer(CONFIG, 21, 0), adam(10), 0.1, 1),
        (MODEL, adam(11), 0.1, 1),
        (MODEL, adam(10, 2.0), 0.1, 1),
        (MODEL, adam(10, 1.0, 0.8), 0.1, 1),
        (MODEL, adam(10, 1.0, 0.9, 0.99), 0.1, 1),
        (MODEL, adam(10, 1.0, 0.9, 0.98, 1e-8), 0.1, 1),
        (MODEL, optax.sgd(0.1), 0.1, 1),
        (MODEL, adam(10), 0.2, 1),
        (MODEL, adam(10), 0.1, 2),
    ]:
        yield make_train_step(model, optimizer, 1, smoothing, parts)
    for decoding in (DecodingConfig(), DecodingConfig(beam_size=3), DecodingConfig(alpha=0.7)):
        for n_best in (1, 2):
            yield functools.partial(translate, MODEL, decoding=decoding, n_best=n_best)


def test_functions_that_differ_in_anything_are_described_differently_and_equal_ones_alike():
    described = [description(one)[0] for one in variants()]
    assert len(set(described)) == len(described)
    assert described == [description(one)[0] for one in variants()]
    packages = set().union(*(description(one)[1] for one in variants()))
    assert {"jax_transformer", "optax"} <= packages


DESCRIBE = "from tests.test_kept import *; print([description(one)[0] for one in variants()])"


def test_every_process_describes_them_alike():
    said = [
        subprocess.run(
            [sys.executable, "-c", DESCRIBE],
            env=os.environ | {"PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert said[0].count("make_train_step.<locals>") == 22  # and `reduce`, its default


def test_objects_modules_with_parameters_and_functions_of_a_script_are_not_described():
    bound = MODEL.bind({"params": {}})
    script = SimpleNamespace(__module__="__main__", __qualname__="f")
    jitted = jax.jit(scaling(2.0))
    more = DecodingConfig()
    vars(more)["hidden"] = 3
    objects = np.array([None])
    for value in (object(), bound, script, jax.random.key(0), {1}, jitted, more, objects):
        with pytest.raises(NotDescribedError):
            description(value)
    for value in (jnp.sin, jax.nn.relu, np.dtype("int8"), Transformer, len, None, {"a": (1, [2])}):
        description(value)


def test_a_function_in_the_place_of_another_is_not_taken_for_it(monkeypatch):
    before = optax.apply_updates
    monkeypatch.setattr(optax, "apply_updates", scaling(2.0))
    assert "scaling" in description(optax.apply_updates)[0]
    module = sys.modules[before.__module__]
    for other in (scaling(2.0), None):
        monkeypatch.setattr(module, "apply_updates", other)
        with pytest.raises(NotDescribedError, match="of which there is another"):
            description(before)


def test_a_function_that_closes_over_itself_is_described():
    def depth(tree):
        return 1 + max(map(depth, tree)) if isinstance(tree, list) else 0

    assert description(depth) == description(depth)


def test_an_edited_file_of_a_package_is_another_code_whatever_its_size_and_time(
    tmp_path, monkeypatch
):
    path = tmp_path / "edited" / "__init__.py"
    path.parent.mkdir()
    monkeypatch.setitem(sys.modules, "edited", SimpleNamespace(__file__=str(path)))
    loaded = kept._LOADED
    monkeypatch.setattr(kept, "_LOADED", float("inf"))

    def code(name="__init__.py", content=""):
        (path.parent / name).write_text(content)
        os.utime(path.parent / name, (1e9, 1e9))
        kept._code_of.cache_clear()
        return kept._code_of("edited")

    seen = [code(content="FACTOR = 2"), code(content="FACTOR = 3"), code("more.py")]
    assert len({*seen}) == 3
    assert code(content="FACTOR = 3") == seen[2]
    monkeypatch.setattr(kept, "_LOADED", loaded)
    kept._code_of.cache_clear()
    with pytest.raises(NotDescribedError, match="changed since"):  # it was loaded
        kept._code_of("edited")
    monkeypatch.setitem(sys.modules, "edited", SimpleNamespace(__file__=None))
    with pytest.raises(NotDescribedError, match="no files"):
        kept._code_of("edited")
