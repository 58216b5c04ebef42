r"""The speed of training compared with PyTorch, in alternating trials of the same work.

python -m benchmarks.vs_torch                       tiny and base, float32
python -m benchmarks.vs_torch --model=base --batch_tokens=25000 --compile \
    --set=model.compute_dtype=bfloat16              the paper's batches, on a GPU

Parameters, batches and loss are the same. PyTorch is tuned: fused Adam, queries, keys and values
from one product, autocast for bfloat16 and the faster of two attentions. Before the trials both
losses of the first batch must agree. Both use the device that JAX uses; JAX_PLATFORMS=cpu keeps
them on the CPU.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

# Both hold their models on the same GPU, so JAX must not take all of its memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
from absl import flags

from benchmarks.measuring import (
    BOS_ID,
    FLAGS,
    PAD_ID,
    TrainingStep,
    Workload,
    define_batch_tokens,
    define_workloads,
    header,
    on_gpu,
    run,
    table,
    time_alternating,
    time_call,
    training_batch,
    workloads,
)
from jax_transformer.config import TrainingConfig
from jax_transformer.errors import InputError
from jax_transformer.formats.layout import flat_arrays
from jax_transformer.models.transformer import Transformer
from jax_transformer.parallel import Devices, compiler_options
from jax_transformer.runtime import cores
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import initial_state, make_loss
from jax_transformer.types import Params

define_workloads()
define_batch_tokens()
flags.DEFINE_bool("compile", False, "Also measure PyTorch under torch.compile.")
flags.DEFINE_integer("steps", 3, "Training steps in a trial.", lower_bound=1)

TRAINING = TrainingConfig()  # the paper's label smoothing, warm-up and Adam
# Relative: float32 sums in another order; bfloat16 rounds in other places.
TOLERANCES = {"float32": 1e-4, "bfloat16": 1e-2}
COLUMNS = [
    "model",
    "dtype",
    "trainer",
    "target tokens/s",
    "speed",
    "ms/step",
    "range",
    "compile s",
]


def main() -> None:
    """Measure each model, and print the table."""
    if find_spec("torch") is None:
        raise InputError("expected PyTorch, found none; install it with pip install -e '.[torch]'")
    shapes = workloads()
    print(header("torch"), flush=True)
    rows = [cells for name, shape in shapes.items() for cells in compare(name, shape)]
    print(f"timing      median and range of {FLAGS.trials} trials of {FLAGS.steps} steps each")
    print("speed       relative to jax, 1.00; higher is faster")
    print(f"\n{table(COLUMNS, rows)}")


def compare(name: str, shape: Workload) -> list[list[str]]:
    """Return the table's line for each trainer. Raises InputError if their losses differ."""
    model = Transformer(shape.model, shape.vocabulary_size, PAD_ID)
    optimizer = adam_with_warmup(shape.model.d_model, TRAINING.warmup_steps)
    params = jax.device_get(initial_state(model, optimizer, seed=1).params)
    theirs = torch_trainer(shape, params)
    check_losses(first_loss(model, params, shape), theirs.loss, shape.model.compute_dtype)
    calls = {"jax": jax_steps(shape), f"torch, {theirs.attention}": theirs.take_steps}
    if FLAGS.compile:
        calls["torch.compile"] = torch_trainer(shape, params, compiled=True).take_steps
    timings = time_alternating(calls, FLAGS.trials)
    real = int((np.asarray(training_batch(shape).target) != PAD_ID).sum())
    rows = []
    for trainer, timing in timings.items():
        step = timing.of_each(FLAGS.steps)
        cells = [
            f"{real / step.median:,.0f}",
            f"{timings['jax'].median / timing.median:.2f}",
            *step.cells(),
            f"{timing.compile_seconds:.1f}",
        ]
        rows.append([name, shape.model.compute_dtype, trainer, *cells])
    return rows


def check_losses(ours: float, theirs: float, dtype: str) -> None:
    """Raise InputError if losses of the same parameters and batch differ, or are not numbers."""
    if not abs(ours - theirs) <= TOLERANCES[dtype] * abs(ours):
        raise InputError(
            f"expected one loss of the same parameters, found {ours:.6f} by jax and {theirs:.6f} "
            "by torch; leave out the settings that the PyTorch model does not have"
        )


def first_loss(model: Transformer, params: Params, shape: Workload) -> float:
    """Return our loss of the batch before training, without dropout, in nats per target token."""
    options = compiler_options(shape.model.compute_dtype)
    loss = jax.jit(make_loss(model, BOS_ID, TRAINING.label_smoothing), compiler_options=options)
    found = loss(params, training_batch(shape))
    return float(found.smoothed / found.tokens)


def jax_steps(shape: Workload) -> Callable[[], None]:
    """Return a function that takes the steps of one trial with our own trainer."""
    devices = Devices(1, shape.model.compute_dtype)
    take_step = TrainingStep(shape, devices)

    def take_steps() -> None:
        result = None
        for _ in range(FLAGS.steps):
            result = take_step()
            if not on_gpu():  # two steps under way on a CPU would need twice the memory
                jax.block_until_ready(result)
        jax.block_until_ready(result)

    return take_steps


@dataclass(frozen=True)
class TorchTrainer:
    """PyTorch with our parameters: the steps of one trial, the loss before them, its attention."""

    take_steps: Callable[[], None]
    loss: float
    attention: str


def torch_trainer(shape: Workload, params: Params, compiled: bool = False) -> TorchTrainer:
    """Return a tuned trainer on JAX's device. Raises InputError if PyTorch does not find it."""
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.torch_model import TorchModel

    device = "cuda" if on_gpu() else "cpu"
    if on_gpu() and not torch.cuda.is_available():
        raise InputError(
            "expected PyTorch to find the GPU that JAX uses, found none; install PyTorch for CUDA, "
            "or set JAX_PLATFORMS=cpu"
        )
    torch.set_num_threads(cores())
    torch.set_flush_denormal(True)
    full = shape.model.matmul_precision == "highest"
    torch.set_float32_matmul_precision("highest" if full else "high")
    torch.manual_seed(1)
    model = TorchModel(flat_arrays(params), PAD_ID, shape.length).to(device)
    batch = training_batch(shape)
    source, target = (
        torch.tensor(np.asarray(side), dtype=torch.int64, device=device) for side in batch[:2]
    )
    loss = _torch_loss(model, shape, device)
    with torch.no_grad():
        before = float(loss(source, target))
    model.dropout = shape.model.dropout_rate
    model.attention_dropout = shape.model.attention_dropout_rate
    attention = _faster_attention(model, lambda: loss(source, target))
    if compiled:
        loss = torch.compile(loss)
    optimizer = torch.optim.Adam(
        model.parameters(),
        lr=0.0,
        betas=(TRAINING.adam_b1, TRAINING.adam_b2),
        eps=TRAINING.adam_epsilon,
        fused=True,
    )
    peak, warmup = shape.model.d_model**-0.5, TRAINING.warmup_steps
    step = 0

    def take_steps() -> None:
        nonlocal step
        for _ in range(FLAGS.steps):
            step += 1
            optimizer.zero_grad(set_to_none=True)
            loss(source, target).backward()
            for group in optimizer.param_groups:
                group["lr"] = peak * min(step**-0.5, step * warmup**-1.5)
            optimizer.step()
        _synchronize()

    return TorchTrainer(take_steps, before, attention)


def _torch_loss(model: Any, shape: Workload, device: str) -> Callable[..., Any]:
    import torch  # pyright: ignore[reportMissingImports]

    from benchmarks.torch_model import smoothed_loss

    in_bfloat16 = shape.model.compute_dtype == "bfloat16"

    def loss(source: Any, target: Any) -> Any:
        shifted = torch.nn.functional.pad(target[:, :-1], (1, 0), value=BOS_ID)
        with torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
            logits = model(source, shifted)
            return smoothed_loss(logits, target, TRAINING.label_smoothing, PAD_ID)

    return loss


def _faster_attention(model: Any, loss: Callable[[], Any]) -> str:
    """Set the attention that takes less time for a gradient, and return its name."""
    from benchmarks.torch_model import ATTENTIONS

    def gradient() -> None:
        loss().backward()
        model.zero_grad(set_to_none=True)
        _synchronize()

    seconds = {}
    for name, attend in ATTENTIONS.items():
        model.attend = attend
        seconds[name] = time_call(gradient, trials=3).median
    fastest = min(seconds, key=lambda name: seconds[name])
    model.attend = ATTENTIONS[fastest]
    return fastest


def _synchronize() -> None:
    import torch  # pyright: ignore[reportMissingImports]

    if on_gpu():
        torch.cuda.synchronize()


if __name__ == "__main__":
    run(main)
