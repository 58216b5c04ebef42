"""JAX's compilation cache on disk, of the process of a command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
import jax, jax.numpy as jnp
from jax_transformer.runtime.compilation_cache import enable_compilation_cache
print(enable_compilation_cache())
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((8, 8))).block_until_ready()
print(sum(name == "/jax/compilation_cache/cache_hits" for name in hits))
"""


def compile_in_new_process(**environment):
    """(cache folder, number of functions read from it, log) of a process that compiles."""
    names = ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME", "JAX_ENABLE_COMPILATION_CACHE")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=inherited | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    folder, hits = done.stdout.split()
    return folder, int(hits), done.stderr


@pytest.mark.slow
def test_a_second_process_reads_what_the_first_compiled_from_a_private_folder(tmp_path):
    first = compile_in_new_process(XDG_CACHE_HOME=str(tmp_path))
    assert first == (str(tmp_path / "jax_transformer"), 0, "")
    assert Path(first[0]).stat().st_mode & 0o777 == 0o700
    folder, hits, _ = compile_in_new_process(XDG_CACHE_HOME=str(tmp_path))
    assert folder == first[0]
    assert hits > 0


def give_away(folder):
    if os.getuid():
        pytest.skip("only root can give a folder to somebody else")
    os.chown(folder, 65534, 65534)


@pytest.mark.slow
@pytest.mark.parametrize("open_to_others", [lambda f: f.chmod(0o720), give_away])
def test_a_folder_of_others_or_that_they_may_write_to_is_not_used(tmp_path, open_to_others):
    folder = tmp_path / "jax_transformer"
    folder.mkdir()
    open_to_others(folder)
    found, _, log = compile_in_new_process(XDG_CACHE_HOME=str(tmp_path))
    assert found == "None"
    assert "not cached" in log
    assert not list(folder.iterdir())
