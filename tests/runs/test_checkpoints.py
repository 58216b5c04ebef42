"""Checkpoints: bit-identical or refused, whatever happens to the files or to the process."""

import contextlib
import errno
import os
import random
import resource
import shutil
import string
import sys
import tempfile
import threading
import time
from collections import namedtuple
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_transformer.data.urls import absolute
from jax_transformer.errors import InputError
from jax_transformer.runs import averages, checkpoints
from jax_transformer.runs.best import BestStep
from jax_transformer.runs.checkpoints import Checkpoints, restore_params
from jax_transformer.runs.load import build_model, load_vocabularies
from jax_transformer.runs.run_dir import PATTERNS, RunFolder
from jax_transformer.training.train_step import abstract_params


def model(seed):
    """(params, optimizer state) with odd values, several dtypes and 0-d arrays."""
    random = np.random.default_rng(seed)
    params = {
        "encoder": {"kernel": random.normal(size=(64, 64)).astype(np.float32)},
        "half": random.normal(size=(3, 5)).astype(jnp.bfloat16),
        "odd": np.array([np.nan, np.inf, -0.0, 1e-45], np.float32),
        "scale": np.array(seed, np.float32),
    }
    state = optax.adam(1e-3).init(params)
    gradients = jax.tree.map(jnp.ones_like, params)
    return params, jax.device_get(optax.adam(1e-3).update(gradients, state)[1])


def like(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def save(folder, *steps, **settings):
    with Checkpoints(folder, **settings) as saved:
        for step in steps:
            saved.save(step, *model(step), {"epoch": 1, "index": step}, {})


def restore(folder):
    with Checkpoints(folder) as saved:
        return saved.restore_latest(*map(like, model(0)))


def warnings_of(caplog):
    loggers = checkpoints.__name__, averages.__name__
    return [r.getMessage() for r in caplog.records if r.name in loggers]


def identical(tree, other):
    leaves, others = jax.tree.leaves(tree), jax.tree.leaves(other)
    return jax.tree.structure(tree) == jax.tree.structure(other) and all(
        type(a) is np.ndarray and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(leaves, others, strict=True)
    )


def is_step(saved, step):
    return (saved.step, saved.position) == (step, {"epoch": 1, "index": step}) and identical(
        (saved.params, saved.optimizer), model(step)
    )


def files(folder):
    return sorted(path for path in Path(folder).rglob("*") if path.is_file())


def flip(path, where):
    content = bytearray(path.read_bytes())
    content[where] ^= 16
    path.write_bytes(content)


def damage(step_folder):
    for path in files(step_folder / "params"):
        path.write_bytes(path.read_bytes()[:-7])


def test_a_restored_checkpoint_is_bit_identical_to_the_saved_one(tmp_path):
    save(tmp_path, 1, 2)
    saved = restore(tmp_path)
    assert saved is not None
    assert is_step(saved, 2)
    assert saved.optimizer[0].count.shape == ()
    assert saved.optimizer[0].count == 1
    steps, params = checkpoints.restore_params(tmp_path, like(saved.params), step=1)
    assert steps == [1]
    assert identical(params, model(1)[0])


def test_arrays_may_change_once_save_has_returned(tmp_path):
    params, optimizer = model(1)
    params["encoder"]["kernel"] = np.ones((1000, 1000), np.float32)
    with Checkpoints(tmp_path) as saved:
        saved.save(1, params, optimizer, {}, {})
        params["encoder"]["kernel"][:] = 2
    _, restored = checkpoints.restore_params(tmp_path, like(params))
    assert (restored["encoder"]["kernel"] == 1).all()


@pytest.mark.release
def test_every_kind_of_damage_to_every_file_is_found_or_harmless(tmp_path):
    save(tmp_path / "sound", 1)
    positions = random.Random(0)
    found = 0
    for path in files(tmp_path / "sound"):
        name, size = path.relative_to(tmp_path / "sound"), path.stat().st_size
        places = [positions.randrange(size) for _ in range(3) if size]
        flips = [partial(flip, where=place) for place in places]
        for harm in [*flips, Path.unlink, partial(os.truncate, length=size // 2)]:
            shutil.copytree(tmp_path / "sound", tmp_path / "harmed", dirs_exist_ok=True)
            harm(tmp_path / "harmed" / name)
            try:
                assert is_step(restore(tmp_path / "harmed"), 1), name
            except InputError:
                found += 1
            shutil.rmtree(tmp_path / "harmed")
    assert found > 20


def flip_an_array(folder):
    flip(max(files(folder / "2" / "params"), key=lambda path: path.stat().st_size), 2000)


def change_the_position(folder):
    for path in files(folder / "2" / "description"):
        path.write_text(path.read_text().replace('"index": 2', '"index": 3'))


def copy_the_first(folder):
    shutil.rmtree(folder / "2")
    shutil.copytree(folder / "1", folder / "2")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (flip_an_array, "params/encoder/kernel is not what was saved"),  # orbax restores it
        (change_the_position, "its description is not what was saved"),
        (copy_the_first, "it was saved as step 1"),
    ],
)
def test_what_orbax_would_restore_is_found(tmp_path, caplog, harm, reason):
    save(tmp_path, 1, 2)
    harm(tmp_path)
    assert is_step(restore(tmp_path), 1)
    assert f"2 is corrupt ({reason}): using step 1" in warnings_of(caplog)[0]


def test_a_step_with_damage_can_be_saved_again_and_the_damaged_one_is_kept(tmp_path, caplog):
    save(tmp_path, 100, 200, 300)
    for name in ("300.corrupt", "300.corrupt1"):
        damage(tmp_path / "300")
        with Checkpoints(tmp_path) as saved:
            assert is_step(saved.restore_latest(*map(like, model(0))), 200)
            assert saved.steps() == [100, 200]
            saved.save(300, *model(300), {"epoch": 1, "index": 300}, {})
        assert files(tmp_path / name)
        assert warnings_of(caplog)[-1] == f"corrupt checkpoint {tmp_path}/300 is now {name}"
        assert is_step(restore(tmp_path), 300)


def test_an_empty_step_folder_and_strange_names_do_not_disturb(tmp_path, caplog):
    save(tmp_path, 1)
    for name in ("7", "8.corrupt", "notes", "9.orbax-checkpoint-tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "10").write_text("a file")
    assert is_step(restore(tmp_path), 1)
    assert "7 is corrupt" in warnings_of(caplog)[0]
    assert (tmp_path / "notes").exists()
    save(tmp_path, 7, 8, 9)
    assert is_step(restore(tmp_path), 9)
    assert not list(tmp_path.glob("*tmp*"))
    assert restore(tmp_path / "new") is None
    with pytest.raises(InputError, match="found none: save one first"):
        checkpoints.restore_params(tmp_path / "no", like(model(0)[0]))


def test_damaged_and_absent_steps_are_errors_that_list_those_there(tmp_path, caplog):
    params = like(model(0)[0])
    save(tmp_path, 1, 2)
    damage(tmp_path / "2")
    with pytest.raises(InputError, match=r"expected checkpoint 5 in .*, found \[1, 2\]; choose"):
        checkpoints.restore_params(tmp_path, params, step=5)
    with pytest.raises(InputError, match=r"found \[2\], all corrupt .* take another of \[1\]"):
        checkpoints.restore_params(tmp_path, params, step=2)
    damage(tmp_path / "1")
    with pytest.raises(InputError, match=r"found \[1, 2\], all corrupt \(.*\): put"):
        restore(tmp_path)
    assert warnings_of(caplog) == []  # the error alone reports it, in one line


@contextlib.contextmanager
def without_permission(path):
    """Nobody may read the file; root is nobody meanwhile."""
    path.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@contextlib.contextmanager
def on_a_failing_disk(path):
    path.unlink()
    path.symlink_to("/proc/self/mem")  # whose first bytes nobody can read
    yield


@contextlib.contextmanager
def with_too_many_open_files(_):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def public():
    """A folder that any user may read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.parametrize(
    ("fault", "code", "place"),
    [
        (without_permission, errno.EACCES, "params/d/*"),
        (on_a_failing_disk, errno.EIO, "params/_METADATA"),
        (with_too_many_open_files, errno.EMFILE, "description/metadata"),
    ],
)
def test_what_cannot_be_read_is_not_corrupt_and_keeps_its_name(public, fault, code, place):
    save(public, 1, 2)
    (path,) = (public / "2").glob(place)
    with Checkpoints(public) as saved:
        with fault(path), pytest.raises(OSError, match=str(public)) as caught:
            saved.restore_latest(*map(like, model(0)))
        assert caught.value.errno == code
        assert saved.steps() == [1, 2]
    assert {path.name for path in public.iterdir()} == {"1", "2"}


def test_another_model_is_an_error_that_names_the_leaf_and_condemns_nothing(tmp_path):
    save(tmp_path, 1, 2)
    params, optimizer = map(like, model(0))
    others = {
        r"params/half is bfloat16 \(3, 5\) in it, int32 \(\) here": {
            **params,
            "half": jax.ShapeDtypeStruct((), np.int32),
        },
        r"params/encoder/kernel is float32 \(64, 64\) in it, absent here": {
            name: leaf for name, leaf in params.items() if name != "encoder"
        },
    }
    for message, other in others.items():
        with pytest.raises(InputError, match=message), Checkpoints(tmp_path) as saved:
            saved.restore_latest(other, optimizer)
    assert is_step(restore(tmp_path), 2)


def test_a_step_not_after_the_last_is_refused_not_ignored(tmp_path):
    with Checkpoints(tmp_path) as saved:
        saved.save(5, *model(5), {}, {})
        for step in (5, 4):
            with pytest.raises(InputError, match=r"resume from the last"):
                saved.save(step, *model(step), {}, {})


def test_every_path_that_a_run_may_have_holds_checkpoints(tmp_path):
    odd = tmp_path / "".join(sorted({*string.printable, "ü", "语"} - {*PATTERNS, "/"}))
    save(odd, 1)
    assert is_step(restore(odd), 1)


def test_two_dots_after_a_link_lead_where_the_system_goes(tmp_path):
    (tmp_path / "far" / "folder").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "folder")
    folder = RunFolder(tmp_path / "link" / ".." / "run")
    save(folder.checkpoints, 1)
    assert is_step(restore(tmp_path / "far" / "run" / "checkpoints"), 1)
    assert absolute(f"{tmp_path}/link/../a") == f"{tmp_path.resolve()}/far/a"
    for plain in ("link", "far/../link"):  # a link itself stays
        assert RunFolder(tmp_path / plain).path == tmp_path / "link"


def tens(step):
    return step % 10 == 0


def test_the_checkpoint_of_a_stop_goes_with_the_next_and_pushes_no_regular_one_out(tmp_path):
    params = like(model(0)[0])
    for step, there in {
        7: [7],
        10: [10],
        20: [10, 20],
        23: [10, 20, 23],
        30: [20, 30],
        35: [20, 30, 35],
    }.items():
        save(tmp_path, step, keep=2, regular=tens)
        assert [int(path.name) for path in sorted(tmp_path.iterdir())] == there
        if step == 7:  # nothing else to average is there
            assert averages.average(tmp_path, params, 1, tens)[0] == [7]
    assert averages.average(tmp_path, params, 2, tens)[0] == [20, 30]


def test_the_best_step_is_kept_and_averaged_even_if_more_steps_were_requested_after_it(
    small_run, tmp_path
):
    with Checkpoints(tmp_path / "kept", keep=1, regular=tens) as saved:
        saved.keep_best(23, 2)  # 23 was the last step of all
        for step in (10, 20, 23, 30, 40):
            saved.save(step, *model(step), {}, {})
    assert saved.steps() == [20, 23, 40]
    folder = RunFolder(shutil.copytree(small_run, tmp_path / "run"))
    run, origin = folder.load_run(), folder.manifest.copy()
    params = abstract_params(build_model(run, *load_vocabularies(folder)))
    best = BestStep("bleu", step=1, score=9.0, evaluated=2)
    assert averages.average_run(folder, run, best, params, origin)[0] == [1]


def test_without_the_best_step_the_last_ones_are_averaged_with_a_warning(
    small_run, tmp_path, caplog
):
    folder = RunFolder(shutil.copytree(small_run, tmp_path / "run"))
    run, origin = folder.load_run(), folder.manifest.copy()
    params = abstract_params(build_model(run, *load_vocabularies(folder)))
    shutil.rmtree(folder.averaged)
    best = BestStep("bleu", step=7, score=9.0, evaluated=7)
    assert averages.average_run(folder, run, best, params, origin)[0] == [1, 2]
    assert "at step 7: its checkpoint is gone; the last" in caplog.text
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), params)
    averages.save_average(folder.averaged, zeros, [5, 7], origin)
    assert averages.average_run(folder, run, best, params, origin)[0] == [5, 7]


def test_a_mean_of_more_checkpoints_stays_unless_another_number_is_asked_for(
    small_run, tmp_path, caplog
):
    folder = RunFolder(shutil.copytree(small_run, tmp_path / "run"))
    run, origin = folder.load_run(), folder.manifest.copy()
    like = abstract_params(build_model(run, *load_vocabularies(folder)))
    shutil.rmtree(folder.checkpoints / "1")  # of 1 and 2, whose mean is there
    before, kept = restore_params(folder.averaged, like)
    steps, params = averages.average_run(folder, run, None, like, origin)
    assert steps == before == [1, 2]
    jax.tree.map(np.testing.assert_array_equal, params, kept)
    assert "the mean of 2, which was there already, is kept" in caplog.text
    assert averages.average_run(folder, run, None, like, origin, last=1)[0] == [2]


def test_the_best_step_goes_only_once_a_better_one_is_saved(tmp_path, monkeypatch):
    with Checkpoints(tmp_path, keep=1) as saved:
        saved.keep_best(1, 1)
        for step in (1, 2, 3):
            saved.save(step, *model(step), {}, {})
        saved.keep_best(4, 1)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", no_free_space)
            with pytest.raises(OSError, match="disk full"):
                saved.save(4, *model(4), {}, {})
        assert saved.steps()[0] == 1
        saved.save(4, *model(4), {}, {})
    assert saved.steps() == [4]


def test_a_step_that_cannot_be_removed_is_a_warning(tmp_path, monkeypatch, caplog):
    def delete(*_):
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(checkpoints.ocp.CheckpointManager, "delete", delete)
    save(tmp_path, 1, 2, keep=1)
    assert f"{tmp_path / '1'} stays: " in caplog.text
    assert is_step(restore(tmp_path), 2)


def test_the_average_is_that_of_numpy_and_skips_the_damaged(tmp_path, caplog):
    save(tmp_path, 1, 2, 3, 4, 5)
    params = like(model(0)[0])
    steps, mean = averages.average(tmp_path, params, last=3)
    assert (steps, warnings_of(caplog)) == ([3, 4, 5], [])
    for name in ("half", "scale"):
        stack = np.stack([model(step)[0][name].astype(np.float64) for step in steps])
        assert mean[name].tobytes() == stack.mean(axis=0).astype(mean[name].dtype).tobytes()
    assert jax.tree.map(lambda x: x.dtype, mean) == jax.tree.map(lambda x: x.dtype, params)
    assert all(isinstance(array, np.ndarray) for array in jax.tree.leaves(mean))
    for number in ([1, 2], steps):  # the second replaces the first
        averages.save_average(tmp_path / "averaged", mean, number, {})
    assert len([path for path in (tmp_path / "averaged").iterdir() if path.is_dir()]) == 1
    found, restored = checkpoints.restore_params(tmp_path / "averaged", params)
    assert found == [3, 4, 5]
    assert identical(restored, mean)
    damage(tmp_path / "1")
    damage(tmp_path / "4")
    steps, _ = averages.average(tmp_path, params, last=9)
    assert steps == [2, 3, 5]
    four, one, few = warnings_of(caplog)
    assert "4 is corrupt" in four
    assert "1 is corrupt" in one
    assert "3 good checkpoints instead of 9" in few


def test_the_mean_with_the_newest_parameters_skips_the_damaged(tmp_path, caplog):
    save(tmp_path, 1, 2, 3)
    damage(tmp_path / "2")
    folder: Any = SimpleNamespace(checkpoints=tmp_path, fetch_steps=lambda *_: None)
    training = SimpleNamespace(average_last=4)
    run: Any = SimpleNamespace(
        config=SimpleNamespace(training=training), is_regular=lambda step: True
    )
    with Checkpoints(tmp_path) as saved:
        mean = averages.mean_with_last(folder, run, 10, model(8)[0], saved)
    assert mean["scale"] == (1 + 3 + 8) / 3
    assert "2 is corrupt" in warnings_of(caplog)[0]


def test_the_mean_with_the_newest_keeps_the_bias_of_what_is_never_written(tmp_path):
    never = {"output_bias": np.full(2, np.finfo(np.float32).min)}
    with Checkpoints(tmp_path) as saved:
        for step in (1, 2):
            saved.save(step, never, (), {}, {})
        folder: Any = SimpleNamespace(checkpoints=tmp_path, fetch_steps=lambda *_: None)
        training = SimpleNamespace(average_last=3)
        run: Any = SimpleNamespace(
            config=SimpleNamespace(training=training), is_regular=lambda step: True
        )
        mean = averages.mean_with_last(folder, run, 3, never, saved)
    np.testing.assert_array_equal(mean["output_bias"], never["output_bias"])


def test_the_average_does_not_lose_what_float32_sums_would(tmp_path):
    with Checkpoints(tmp_path) as saved:
        for step, value in enumerate((1e8, 1.0, -1e8)):
            saved.save(step, {"w": np.full(2, value, np.float32)}, (), {}, {})
    _, mean = averages.average(tmp_path, {"w": np.zeros(2, np.float32)}, last=3)
    assert mean["w"].tolist() == [np.float32(1 / 3)] * 2


def no_free_space(_):
    return namedtuple("usage", "total used free")(10**6, 10**6 - 10, 10)


def test_too_little_space_is_seen_before_writing_and_is_one_line(tmp_path, monkeypatch):
    save(tmp_path, 0, 1)
    with Checkpoints(tmp_path, keep=1) as saved:
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", no_free_space)
            where = r"2 was not saved: disk full.*: \[0, 1\]\)$"
            with pytest.raises(OSError, match=where) as caught:
                saved.save(2, *model(2), {}, {})
        saved.wait()
        assert saved.steps() == [0, 1]  # nothing is removed before something is saved
        assert caught.value.errno == errno.ENOSPC
        assert "\n" not in str(caught.value)
        monkeypatch.setattr(shutil, "disk_usage", lambda _: namedtuple("u", "total free")(0, 0))
        saved.save(2, *model(2), {"epoch": 1, "index": 2}, {})  # the space is not known
    assert is_step(restore(tmp_path), 2)


def test_what_is_replaced_while_it_is_read_is_not_called_corrupt(tmp_path, monkeypatch, caplog):
    params, read = like(model(0)[0]), checkpoints._read_description
    averages.save_average(tmp_path, model(1)[0], [1], {})

    def replaced(folder, step):
        monkeypatch.setattr(checkpoints, "_read_description", read)
        averages.save_average(tmp_path, model(2)[0], [2], {})
        return read(folder, step)

    monkeypatch.setattr(checkpoints, "_read_description", replaced)
    steps, restored = checkpoints.restore_params(tmp_path, params)
    assert steps == [2]
    assert identical(restored, model(2)[0])
    monkeypatch.setattr(checkpoints, "_read_description", replaced)
    assert checkpoints.read_description(tmp_path)["position"] == {"steps": [2]}
    assert warnings_of(caplog) == []


def test_a_damaged_description_is_passed_over_with_one_warning(tmp_path, caplog):
    save(tmp_path, 1, 2)
    flip(tmp_path / "2/description/metadata", 40)
    for _ in range(2):
        found = checkpoints.read_description(tmp_path)
        assert (found["position"], found["origin"]) == ({"epoch": 1, "index": 1}, {})
    (message,) = warnings_of(caplog)
    assert str(tmp_path / "2") in message
    assert "using step 1" in message


def test_threads_that_go_on_after_a_failure_are_silent(tmp_path, capfd, monkeypatch):
    save(tmp_path / "run", 1)  # imports and compiles: the limit would cut such files short
    monkeypatch.setattr("sys.unraisablehook", sys.__unraisablehook__)
    checkpoints._ignore_late_errors.cache_clear()
    before = set(threading.enumerate())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with contextlib.suppress(OSError):
            save(tmp_path / "full", 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    end = time.monotonic() + 60
    while not set(threading.enumerate()) <= before:  # orbax closes
        assert time.monotonic() < end
        time.sleep(0.01)
    for path in files(tmp_path / "run/1/optimizer"):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with contextlib.suppress(InputError):
            restore(tmp_path / "run")
        path.write_bytes(content)
    time.sleep(0.2)
    assert "Event loop is closed" not in capfd.readouterr().err
