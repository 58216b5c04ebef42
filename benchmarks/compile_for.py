"""Compile training and search for GPUs and TPUs without one: memory, FLOPs, bytes.

python -m benchmarks.compile_for --target=h100-8 --experiment=wmt14-en-de-base
python -m benchmarks.compile_for --target=tpu-v5e-8 --set=model.compute_dtype=bfloat16 --what=train

Compiles the train step as training maps it over eight devices, and the beam search. For another
number of devices give --topology: 8x8 is 64 of v5e, 4x4x4 is 64 of v5p, and 1x8x8 is eight hosts
with eight H100s each. All figures are one device's share. A search's figures are those of its start
and of one step; the number of steps depends on the data. Bytes and kernels are those of fusions and
products; FLOPs are XLA's count on a TPU, those of products on a GPU. The floors are the times at
the chip's peak and bandwidth. "summed" is what a device sums with the others, the gradients.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import jax
import numpy as np
from absl import flags
from jax.experimental import topologies
from jaxtyping import Int, PyTree

from benchmarks.hlo_bytes import kernels, reduced_bytes
from benchmarks.measuring import (
    BOS_ID,
    EOS_ID,
    FLAGS,
    PAD_ID,
    command_line,
    header,
    run,
    table,
)
from experiments.shared_flags import define_set, required
from jax_transformer.config import Config, override
from jax_transformer.decoding.beam_search import Hypotheses
from jax_transformer.decoding.generate import translate
from jax_transformer.decoding.translator import Translator
from jax_transformer.errors import InputError
from jax_transformer.models.transformer import Transformer, as_computed
from jax_transformer.parallel import Devices, compiler_options
from jax_transformer.presets import find_experiment
from jax_transformer.runs.step import stack_params, training_step
from jax_transformer.runtime import environment, with_fused_attention
from jax_transformer.training.train_step import Batch, abstract_params, initial_state
from jax_transformer.types import AnyArray, Params


@dataclass(frozen=True)
class Target:
    """Chips, with their maker's figures for one."""

    platform: str
    name: str  # XLA's for this kind of chip
    topology: str  # of eight chips
    bandwidth: float  # bytes/s of its memory
    # FLOP/s of dense matrix products, by the dtype of their operands; float32 at full precision, or
    # at that which model.matmul_precision names.
    peak: dict[str, float]
    variables: dict[str, str] = dataclasses.field(default_factory=dict)  # for libtpu

    @property
    def plugins(self) -> list[str]:
        """The packages of which one has the compiler."""
        gpu = self.platform == "cuda"
        return ["jax_cuda13_plugin", "jax_cuda12_plugin"] if gpu else ["libtpu"]


def _tpu(name: str, topology: str, accelerator: str, bandwidth: float, peak: float) -> Target:
    variables = {
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": accelerator,
        "TPU_WORKER_HOSTNAMES": "localhost",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # no chip is opened, so none has to be locked
    }
    # A product of full float32 precision is six products of bfloat16, one of "high" is three.
    peaks = {"bfloat16": peak, "float32": peak / 6, "high": peak / 3, "default": peak}
    return Target("tpu", name, topology, bandwidth, peaks, variables)


TARGETS = {
    "tpu-v5e-8": _tpu("v5e", "2x4", "v5litepod-8", 819e9, 197e12),
    "tpu-v5p-8": _tpu("v5p", "2x2x2", "v5p-16", 2765e9, 459e12),  # Google's name counts cores
    "h100-8": Target(
        *("cuda", "h100", "1x1x8", 3352e9),
        {"bfloat16": 989e12, "float32": 67e12, "high": 495e12, "default": 495e12},
    ),
}
# XLA's description of an H100 SXM.
H100 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84978434048 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 }
"""

flags.DEFINE_enum("target", None, list(TARGETS), "The eight devices to compile for.")
flags.DEFINE_string("topology", None, "Another number of such devices, two or more: 8x8 or 4x4x4.")
flags.DEFINE_string("experiment", "wmt14-en-de-base", "The experiment with the model and training.")
define_set("model.compute_dtype=bfloat16", " of the experiment")
flags.DEFINE_list("what", "train,beam-4,beam-21", "train, and beam-N for a beam of N.")
flags.DEFINE_integer("rows", 64, "Sentences, or packed rows, a device.", lower_bound=1)
flags.DEFINE_integer("length", 48, "Tokens in a row on each side.", lower_bound=2)
flags.DEFINE_bool("json", False, "Print an object a line instead of a table.")


class AbsentDevices(Devices):
    """Devices that are only described: functions are lowered for them instead of run."""

    def __init__(self, devices: Any) -> None:
        self.devices = self.local = list(devices)
        self.process, self.processes = 0, 1
        self.options = None  # given when a lowered function is compiled

    def replicate(self, tree: PyTree) -> PyTree[jax.ShapeDtypeStruct]:
        """Return the shapes of a copy on each device."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((self.count, *leaf.shape), leaf.dtype), tree
        )

    def _pmap(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return super()._pmap(function, **options).lower  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Account:
    """The compiler's figures for one compiled function; one device's share."""

    target: str
    what: str
    trace_seconds: float
    compile_seconds: float
    temp_bytes: int
    argument_bytes: int
    flops: int
    fusion_bytes: int
    fusions: int
    reduced_bytes: int


def main() -> None:
    """Compile each function that --what names, and print its account."""
    target = TARGETS[required("target")]
    config = override(find_experiment(FLAGS.experiment).config(), *FLAGS.set)
    if config.data.task == "parsing":
        raise InputError(
            f"--experiment={FLAGS.experiment}: expected one that translates, found a parser, whose "
            "labels depend on its trees; choose another"
        )
    beams = {what: _beam_size(what) for what in FLAGS.what}
    devices = absent_devices(target)
    made_with = environment() | {name: version(name) for name in filter(find_spec, target.plugins)}
    rows = []
    for what, beam_size in beams.items():
        start = time.perf_counter()
        if beam_size:
            lowered = lower_search(config, devices, beam_size)
        else:
            lowered = lower_train_step(config, devices)
        options = compiler_options(config.model.compute_dtype, devices.devices[0])
        account = compile_lowered(what, lowered, time.perf_counter() - start, options)
        rows.append(line_of(account, config, target))
        if FLAGS.json:
            facts = {"command": "".join(command_line()), "environment": made_with}
            print(json.dumps(dataclasses.asdict(account) | facts), flush=True)
    if not FLAGS.json:
        print(header(*target.plugins))
        print(f"target      {FLAGS.target}; a device's share of {devices.count}")
        print(f"model       {FLAGS.experiment} {' '.join(FLAGS.set)}".rstrip())
        print(f"rows        {FLAGS.rows} a device, {FLAGS.length} + {FLAGS.length} tokens")
        print(f"\n{table(list(rows[0]), [list(row.values()) for row in rows])}")


def _beam_size(what: str) -> int:
    """Return the N of beam-N, 0 for train."""
    kind, _, size = what.partition("-")
    if what != "train" and not (kind == "beam" and size.isdecimal() and int(size) > 0):
        raise InputError(f"--what={what}: expected train or beam-N, such as beam-4")
    return int(size or 0)


def absent_devices(target: Target) -> AbsentDevices:
    """Return the target's devices. Raises InputError without its compiler or such a topology."""
    gpu = target.platform == "cuda"
    if not any(map(find_spec, target.plugins)):
        extra = "cuda" if gpu else "compile-for-tpu"
        raise InputError(
            f"--target={FLAGS.target}: expected its compiler, found no "
            f"{' or '.join(target.plugins)}; "
            f"pip install -e '.[{extra}]'"
        )
    os.environ.update(target.variables)
    jax.config.update("jax_platforms", "cpu")  # the process itself computes nothing
    jax.config.update("jax_enable_compilation_cache", False)  # or compile times would be wrong
    topology = FLAGS.topology or target.topology
    name = target.name if gpu else f"{target.name}:{topology}"
    options: dict[str, Any] = {"target_config": H100, "topology": topology} if gpu else {}
    try:
        described = topologies.get_topology_desc(name, target.platform, **options)
    except jax.errors.JaxRuntimeError as error:
        raise InputError(
            f"--topology={topology}: expected one of {FLAGS.target}, such as {target.topology}; "
            f"{' '.join(str(error).split())}"
        ) from None
    if len(described.devices) == 1:
        raise InputError(f"--topology={topology}: expected several devices, found one; give more")
    return AbsentDevices(described.devices)


def build_model(config: Config, devices: AbsentDevices) -> Transformer:
    """Build the model as a run on such devices would."""
    model = with_fused_attention(config.model, devices.devices[0])
    return Transformer(model, config.data.vocabulary_size, PAD_ID)


def lower_train_step(config: Config, devices: AbsentDevices) -> Any:
    """Lower the step of `Trainer`, on packed rows if the experiment packs them."""
    model, training = build_model(config, devices), config.training
    if FLAGS.rows % training.accumulate:
        raise InputError(
            f"--rows={FLAGS.rows}: expected a multiple of training.accumulate, "
            f"{training.accumulate}, the number of parts of a batch"
        )
    optimizer, step = training_step(config, model, BOS_ID)
    state = jax.eval_shape(lambda: initial_state(model, optimizer, seed=1))
    tokens = np.zeros((devices.count * FLAGS.rows, FLAGS.length), np.int32)
    batch = Batch(*[tokens] * (4 if config.data.packing else 2))
    if devices.prefer_few_arrays:
        state = jax.eval_shape(stack_params, state)
    return devices.train_step(step)(devices.replicate(state), devices.shard(batch))


def lower_search(config: Config, devices: AbsentDevices, beam_size: int) -> Any:
    """Lower the first search of `Translator`, under the length cap that most outputs meet."""
    model = build_model(config, devices)
    decoding = dataclasses.replace(config.decoding, beam_size=beam_size)
    length = int(FLAGS.length * Translator.usual_ratio)
    length = min(length, FLAGS.length + decoding.max_extra_length)

    def search(params: Params, source: Int[AnyArray, "B S"]) -> Hypotheses:
        return translate(
            model, params, source, decoding, bos_id=BOS_ID, eos_id=EOS_ID, length=length
        )

    source = np.zeros((devices.count * FLAGS.rows, FLAGS.length), np.int32)
    params = jax.eval_shape(partial(as_computed, config=config.model), abstract_params(model))
    return devices.map_rows(search)(devices.replicate(params), source)


def compile_lowered(
    what: str, lowered: Any, trace_seconds: float, options: dict[str, Any] | None = None
) -> Account:
    """Compile a function."""
    start = time.perf_counter()
    compiled = lowered.compile(compiler_options=options)
    seconds = time.perf_counter() - start
    memory, text = compiled.memory_analysis(), compiled.as_text()
    found = kernels(text)
    flops = (compiled.cost_analysis() or {}).get("flops")  # None on a GPU
    return Account(
        target=FLAGS.target,
        what=what,
        trace_seconds=round(trace_seconds, 2),
        compile_seconds=round(seconds, 2),
        temp_bytes=memory.temp_size_in_bytes,
        argument_bytes=memory.argument_size_in_bytes,
        flops=int(flops or sum(kernel.flops for kernel in found)),
        fusion_bytes=sum(kernel.bytes for kernel in found),
        fusions=sum(kernel.runs for kernel in found),
        reduced_bytes=reduced_bytes(text),
    )


def line_of(account: Account, config: Config, target: Target) -> dict[str, str]:
    """Return one function's line of the table, by column."""
    dtype, precision = config.model.compute_dtype, config.model.matmul_precision
    full = dtype == "bfloat16" or precision == "highest"
    peak = target.peak[dtype if full else precision]
    return {
        "what": account.what,
        "trace s": f"{account.trace_seconds:.1f}",
        "compile s": f"{account.compile_seconds:.1f}",
        "arguments GB": f"{account.argument_bytes / 1e9:.2f}",
        "temporary GB": f"{account.temp_bytes / 1e9:.2f}",
        "GFLOP": f"{account.flops / 1e9:,.1f}",
        "GB": f"{account.fusion_bytes / 1e9:.2f}",
        "kernels": f"{account.fusions:,}",
        "summed GB": f"{account.reduced_bytes / 1e9:.3f}",
        "FLOP floor ms": f"{1e3 * account.flops / peak:.2f}",
        "byte floor ms": f"{1e3 * account.fusion_bytes / target.bandwidth:.2f}",
    }


if __name__ == "__main__":
    run(main)
