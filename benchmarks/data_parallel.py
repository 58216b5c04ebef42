"""The cost of data parallelism (§5.2): the same batch on one device and shared by all of them.

XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m benchmarks.data_parallel --model=tiny

The devices of a CPU share its cores, so the extra time of eight of them over one is the price of
exchanging gradients. On other machines the speed-up shows how well training scales.

The host's time is that of the thread that starts the steps: the time until the call returns, which
on a busy CPU waits for a core, and the part in which the thread computes (CPU). The batch is on the
devices before, as in training, where a thread of its own puts it there.
"""

import time

import jax

from benchmarks.measuring import (
    FLAGS,
    Timing,
    Workload,
    define_batch_tokens,
    define_devices,
    define_workloads,
    header,
    run,
    table,
    time_call,
    training_step,
    workloads,
)
from jax_transformer.parallel import Devices

define_workloads()
define_batch_tokens()
define_devices()

COLUMNS = [
    "model",
    "devices",
    "ms/step",
    "range",
    "speed-up",
    "host ms/step",
    "host CPU ms/step",
    "compile s",
]


def main() -> None:
    """Measure each model on one device and on all, and print the table."""
    shapes = workloads()
    print(header(), flush=True)
    rows = []
    for name, shape in shapes.items():
        one = None
        for count in (1, FLAGS.devices):
            devices = Devices(count, shape.model.compute_dtype)
            timing, host, host_cpu = measure(shape, devices)
            one = one or timing
            rows.append(
                [
                    name,
                    str(devices.count),
                    *timing.cells(),
                    f"{one.median / timing.median:.2f}",
                    f"{1000 * host.median:,.1f}",
                    f"{1000 * host_cpu.median:,.2f}",
                    f"{timing.compile_seconds:.1f}",
                ]
            )
    print(f"timing      median and range of {FLAGS.trials} steps")
    print("host        until the call returns that starts a step; CPU: of the calling thread in it")
    print(f"\n{table(COLUMNS, rows)}")


def measure(shape: Workload, devices: Devices) -> tuple[Timing, Timing, Timing]:
    """Time a step until its results are there and until the host can go on, and its CPU time."""
    take_step, host, host_cpu = training_step(shape, devices), [], []

    def call() -> None:
        start, start_cpu = time.perf_counter(), time.thread_time()
        result = take_step()
        host_cpu.append(time.thread_time() - start_cpu)
        host.append(time.perf_counter() - start)
        jax.block_until_ready(result)

    timing = time_call(call, FLAGS.trials)
    return timing, Timing(host[-FLAGS.trials :], 0.0), Timing(host_cpu[-FLAGS.trials :], 0.0)


if __name__ == "__main__":
    run(main)
