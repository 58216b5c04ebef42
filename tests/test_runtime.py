"""The process of a command: where compiled functions are cached, and what its launcher says."""

import os
import platform
import pwd
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from refusals import refusal

from jax_transformer import parallel, runtime
from jax_transformer.config import ModelConfig
from jax_transformer.data.sources import cached_test_set
from jax_transformer.files import cache_folder, expanded
from jax_transformer.runs.bucket import Bucket
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime import with_fused_attention

CPU = {"JAX_PLATFORMS": "cpu"}
ONE_THREAD = "--xla_cpu_multi_thread_eigen=false"
SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture
def uncached(monkeypatch):
    """A process for whose compiled functions JAX has no folder yet; its settings come back."""
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE"):
        monkeypatch.delenv(name, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_compiled_functions_are_cached_in_a_private_folder(uncached, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert runtime.enable_compilation_cache() == tmp_path / "jax_transformer"
    assert (tmp_path / "jax_transformer").stat().st_mode & 0o777 == 0o700
    found = [getattr(jax.config, name) for name in SETTINGS]
    assert found == [str(tmp_path / "jax_transformer"), 0.0]
    assert runtime.enable_compilation_cache() is None  # JAX has a folder already


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_until_it_is_returned():
    code = """
import os, resource
from jax_transformer import runtime
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
assert runtime.keep_freed_memory()
before = resident()
blocks = [bytearray(b"x") * 2**20 for _ in range(300)]
del blocks[:-1]
assert resident() - before > 250 * 2**20
runtime.return_freed_memory()
assert resident() - before < 50 * 2**20
"""
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | CPU)
    tuned = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    code = "from jax_transformer import runtime; assert not runtime.keep_freed_memory()"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ | CPU | tuned)


@pytest.mark.parametrize(
    ("capability", "given", "expected"),
    [
        ("9.0", None, True),
        ("9.0", False, False),
        ("8.0", None, False),
        ("8.0", True, True),
        ("7.5", True, False),
        ("12.0", True, True),
        ("gfx90a", True, False),  # an AMD GPU
        (None, None, False),
    ],
)
def test_attention_is_fused_where_that_is_faster_or_asked_for(capability, given, expected):
    model = ModelConfig(compute_dtype="bfloat16", fused_attention=given)
    assert with_fused_attention(model).fused_attention is False  # a CPU
    known = {"compute_capability": capability} if capability else {}
    gpu = SimpleNamespace(platform="gpu", **known)
    assert with_fused_attention(model, gpu).fused_attention is expected
    assert with_fused_attention(ModelConfig(), gpu).fused_attention is False  # float32


def test_each_core_of_a_small_cpu_becomes_a_device(monkeypatch):
    monkeypatch.setattr(runtime, "_may_use_accelerator", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(cores)}, raising=False)
    usual = "--xla_dump_to=/somewhere"
    for cores, expected in ((1, 1), (2, 2), (4, 4), (5, 1)):
        monkeypatch.setenv("XLA_FLAGS", usual)
        assert runtime.split_cpu() == expected
        added = f" --xla_force_host_platform_device_count={cores} {ONE_THREAD}"
        assert os.environ["XLA_FLAGS"] == usual + (added if expected > 1 else "")
    cores = 2
    # That of the user stays; XLA takes the whole variable for a name if it begins like one.
    for chosen in ("--xla_force_host_platform_device_count=8", "/home/me/xla.flags"):
        monkeypatch.setenv("XLA_FLAGS", chosen)
        assert (runtime.split_cpu(), os.environ["XLA_FLAGS"]) == (1, chosen)
    monkeypatch.setenv("XLA_FLAGS", "")
    with monkeypatch.context() as patched:
        patched.setenv("JAX_NUM_CPU_DEVICES", "1")
        assert (runtime.split_cpu(), os.environ["XLA_FLAGS"]) == (1, "")
    monkeypatch.setattr(runtime, "_may_use_accelerator", lambda: True)
    assert (runtime.split_cpu(), os.environ["XLA_FLAGS"]) == (1, "")


END = """
import logging
from jax_transformer.runtime import end_process
logging.error("x")
end_process(2, always=True)
"""


def test_a_process_ends_at_once_though_its_messages_cannot_be_written():
    with open("/dev/full", "w") as full:
        buffered = os.environ | {"PYTHONUNBUFFERED": ""}
        command = [sys.executable, "-c", END]
        ended = subprocess.run(command, stderr=full, env=buffered, check=False)
    assert ended.returncode == 2


COMPILE = """
import jax, jax.numpy as jnp
from jax_transformer.runtime import enable_compilation_cache
print(enable_compilation_cache())
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name))
jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((8, 8))).block_until_ready()
print(sum(name == "/jax/compilation_cache/cache_hits" for name in hits))
"""


@pytest.mark.release
def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    names = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COMPILE],
            env=inherited | {"XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        folder, hits = done.stdout.split()
        assert (folder, done.stderr) == (str(tmp_path / "jax_transformer"), "")
        found.append(int(hits))
    assert found[0] == 0 < found[1]


def give_away(folder):
    if os.getuid():
        pytest.skip("only root can give a folder to somebody else")
    os.chown(folder, 65534, 65534)


@pytest.mark.parametrize("open_to_others", [lambda f: f.chmod(0o720), give_away])
def test_a_folder_of_others_or_that_they_may_write_to_is_not_used(
    uncached, tmp_path, monkeypatch, caplog, open_to_others
):
    folder = tmp_path / "jax_transformer"
    folder.mkdir()
    open_to_others(folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert runtime.enable_compilation_cache() is None
    assert "not cached" in caplog.text
    assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore


def nobody(_):
    raise KeyError


def test_without_a_home_nothing_is_cached_and_that_is_logged_once(
    uncached, tmp_path, monkeypatch, caplog
):
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CACHE_HOME", "SACREBLEU"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)  # a container's account has a number alone
    assert [runtime.enable_compilation_cache() for _ in range(3)] == [None] * 3
    (message,) = caplog.messages
    assert "XDG_CACHE_HOME" in message
    assert "XDG_CACHE_HOME" in refusal(Bucket, "memory://bucket/run")
    assert "no HOME" in refusal(cached_test_set, "wmt14", "en-de")
    assert "no HOME" in refusal(expanded, "~/run")
    assert "no HOME" in refusal(RunFolder, "~/run")
    assert os.listdir(tmp_path) == []


def test_the_cache_is_where_xdg_says_and_a_relative_path_does_not_count(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    for value, folder in {
        "/var/cache": "/var/cache",
        "~/caches": "/home/me/caches",
        "here": "/home/me/.cache",
        "": "/home/me/.cache",
    }.items():
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert cache_folder() == Path(folder) / "jax_transformer"


INTERACTIVE = {"SLURM_NTASKS": "4"}  # salloc's shell, and a batch script


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (INTERACTIVE, None),
        (INTERACTIVE | {"SLURM_STEP_ID": "0"}, "SLURM_NTASKS"),
        (INTERACTIVE | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}, "SLURM_NTASKS"),
        # An interactive step: srun starts the shell of the allocation.
        (INTERACTIVE | {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"}, None),
        (INTERACTIVE | {"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_SIZE"),
        ({}, None),
    ],
)
def test_an_allocation_of_slurm_is_several_processes_only_in_a_step(
    variables, expected, monkeypatch
):
    for name in [*os.environ]:
        if name.startswith(("SLURM_", "OMPI_")):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert runtime.one_of_several() == expected


@pytest.mark.parametrize("address", ["host0", "host0:", "host0:http", "host0:99999", ":8476"])
def test_an_address_of_process_0_without_a_host_or_a_port_is_refused(address):
    assert f"={address}: expected" in refusal(runtime.start_processes, address, 2, 0)


def test_processes_do_not_look_for_each_other_behind_a_proxy(monkeypatch):
    proxies = {"http_proxy": "http://127.0.0.1:9", "HTTPS_PROXY": "http://b", "no_proxy": "c"}
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
    seen = []
    monkeypatch.setattr(runtime, "entry_points", lambda group: [])
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: seen.append({**os.environ}))
    preemption = jax.config.jax_enable_preemption_service  # pyright: ignore
    monkeypatch.setattr("sys.excepthook", None)
    try:
        runtime.start_processes("localhost:1", 2, 0)
    finally:
        jax.config.update("jax_enable_preemption_service", preemption)
    assert not [name for name in seen[0] if name.lower().endswith("_proxy")]
    assert {name: os.environ[name] for name in proxies} == proxies


def test_the_environment_has_the_commit_of_a_checkout_alone(tmp_path, monkeypatch):
    assert runtime.environment()["cores"] == len(os.sched_getaffinity(0))
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init"], ["commit", "--allow-empty", "-m", "a"], ["tag", "-a", "-m", "b", "v1"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    for place, expected in (("jax_transformer", True), ("lib/jax_transformer", False)):
        monkeypatch.setattr(runtime, "__file__", str(tmp_path / place / "runtime.py"))
        commit = runtime.environment()["commit"]
        assert (commit is not None and head.stdout.startswith(commit)) is expected


@pytest.mark.parametrize(("plugin", "cached"), [("tpu", True), ("xla_cuda13", False)])
def test_several_processes_with_gpus_do_not_cache_what_they_compile(
    monkeypatch, uncached, tmp_path, plugin, cached
):
    """JAX's process 0 alone writes the cache, and XLA divides the choice of kernels."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(runtime, "entry_points", lambda group: [SimpleNamespace(name=plugin)])
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(jax.distributed, "initialize", lambda *_, **__: None)
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(sys, "excepthook", None)
    preemption = jax.config.jax_enable_preemption_service  # pyright: ignore
    try:
        runtime.start_processes("localhost:1", 2, 0)
        assert jax.config.jax_enable_compilation_cache == cached  # pyright: ignore
    finally:
        jax.config.update("jax_enable_compilation_cache", True)
        jax.config.update("jax_enable_preemption_service", preemption)
    assert bool(runtime.enable_compilation_cache()) == cached


def test_a_device_that_cannot_be_used_is_named_with_what_helps(monkeypatch):
    def taken():
        raise RuntimeError("The TPU is already in use by process with pid 7.")

    monkeypatch.setattr(jax, "devices", taken)
    for given, remedy in (("", "set JAX_PLATFORMS=cpu"), ("tpu", "unset JAX_PLATFORMS")):
        monkeypatch.setenv("JAX_PLATFORMS", given)
        message = refusal(parallel.check_devices)
        assert "in use by process with pid 7" in message
        assert remedy in message
