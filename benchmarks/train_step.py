"""The speed of a training step: tokens/s, FLOP/s and the time to compile.

python -m benchmarks.train_step                    tiny and base
python -m benchmarks.train_step --model=big --batch_tokens=25000 --set=model.compute_dtype=bfloat16

A step is the forward and backward pass and Adam, under dropout, shared by all devices. The peak is
the speed of one of them in a product of two large matrices of the same dtype, times the number of
devices, so "of peak" is the model FLOPs utilization (MFU) relative to the measured peak. Memory is
the most that one device has held since the command started: measure one model at a time.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.measuring import (
    FLAGS,
    PAD_ID,
    Timing,
    TrainingStep,
    Workload,
    define_batch_tokens,
    define_devices,
    define_workloads,
    header,
    run,
    table,
    time_call,
    training_batch,
    workloads,
)
from jax_transformer.config import ModelConfig
from jax_transformer.errors import InputError
from jax_transformer.evaluation.flops import count_training_flops
from jax_transformer.parallel import Devices, compiler_options

define_workloads()
define_batch_tokens()
define_devices()
flags.DEFINE_bool(
    "stacked",
    None,
    "Keep all parameters of one shape in one array (default: as training does, except on TPUs).",
)

COLUMNS = [
    "model",
    "batch",
    "dtype",
    "tokens/s",
    "target tokens/s",
    "ms/step",
    "range",
    "GFLOP/step",
    "GFLOP/s",
    "peak GFLOP/s",
    "of peak",
    "memory GB",
    "compile s",
]


def main() -> None:
    """Measure each model, and print the table."""
    shapes = workloads()
    print(header(), flush=True)
    rows = []
    for name, shape in shapes.items():
        devices = Devices(FLAGS.devices, shape.model.compute_dtype)
        if devices.count != (FLAGS.devices or devices.count):
            raise InputError(
                f"--devices={FLAGS.devices}: expected so many devices, found {devices.count}; give "
                "fewer, or leave the flag out"
            )
        timing, memory = measure(shape, devices)
        peak = devices.count * measure_peak(shape.model)
        rows.append(row(name, shape, timing, peak, memory))
    count = FLAGS.devices or jax.device_count()
    print(f"timing      {count} devices, median and range of {FLAGS.trials} steps")
    print("tokens      source and target, without padding")
    print("FLOP        those of matrix products, padding included")
    print(f"\n{table(COLUMNS, rows)}")


def measure(shape: Workload, devices: Devices) -> tuple[Timing, int]:
    """Time a step until its results are there, and return the bytes of a device that it needs."""
    take_step = TrainingStep(shape, devices, FLAGS.stacked)
    timing = time_call(lambda: jax.block_until_ready(take_step()), FLAGS.trials)
    return timing, take_step.memory()


def measure_peak(model: ModelConfig) -> float:
    """Measure one device's FLOP/s in large matrix products of the model's dtype and precision."""
    size = 2048 if jax.default_backend() == "cpu" else 8192
    matrix = jnp.ones((size, size), model.compute_dtype)
    options = compiler_options(model.compute_dtype)
    matmul = partial(jnp.matmul, precision=model.matmul_precision)
    product = jax.jit(matmul, compiler_options=options)
    timing = time_call(lambda: product(matrix, matrix).block_until_ready(), FLAGS.trials)
    return 2 * size**3 / min(timing.seconds)


def row(name: str, shape: Workload, timing: Timing, peak: float, memory: int) -> list[str]:
    """Return one model's line of the table. peak: the FLOP/s of all devices."""
    batch = training_batch(shape)
    source, target = (int((np.asarray(side) != PAD_ID).sum()) for side in batch[:2])
    pair = count_training_flops(shape.model, shape.vocabulary_size, shape.length, shape.length)
    flops = shape.rows * pair
    return [
        name,
        f"{shape.rows} x ({shape.length} + {shape.length})",
        shape.model.compute_dtype,
        f"{(source + target) / timing.median:,.0f}",
        f"{target / timing.median:,.0f}",
        *timing.cells(),
        f"{flops / 1e9:,.1f}",
        f"{flops / timing.median / 1e9:,.0f}",
        f"{peak / 1e9:,.0f}",
        f"{flops / timing.median / peak:.1%}",
        f"{memory / 1e9:.3g}",
        f"{timing.compile_seconds:.1f}",
    ]


if __name__ == "__main__":
    run(main)
