"""PyTorch's turn at the training that benchmarks.training_work describes, tuned and stock."""

import math
import shutil
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

from benchmarks.contender import Prepared, RefusalError
from benchmarks.torch_models import ATTENTIONS, Stock, Tuned

BETAS, EPSILON = (0.9, 0.98), 1e-9  # the paper's Adam
TRIALS = 3  # passes timed of each way to attend
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def prepare_tuned(
    path: str,
    dropout: float,
    attention_dropout: float,
    dtype: str,
    label_smoothing: float,
    warmup_steps: int,
    ids: tuple[int, int],
    threads: int,
    compiled: bool = False,
    device: str = "cpu",
) -> Prepared:
    """What a fair expert makes of it; ids are those of PAD and BOS.

    Fused products and fused Adam, smoothing inside cross_entropy, bfloat16 by autocast, no
    gradients of zeros, the faster of two ways to attend; as many threads as cores, or on a GPU
    ("cuda") float32 products rounded as JAX's are there.
    Turns and facts are as those of ours. Raises RefusalError where nothing can be compiled, or
    PyTorch has no such device.
    """
    _check_device(device)
    if compiled and not (shutil.which("g++") or shutil.which("clang++")):
        raise RefusalError("--compile: expected g++ for inductor, found none; install it")
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("high")  # on a GPU; a CPU's stays what it is
    torch.manual_seed(1)
    params, batches = _read(path, device)
    model = Tuned(params, ids[0], max(side.shape[1] for side in batches[0])).to(device)
    loss = _tuned_loss(model, label_smoothing, dtype, *ids)
    with torch.no_grad():
        before = float(loss(*batches[0]))
    model.dropout, model.attention_dropout = dropout, attention_dropout
    about = _choose_attention(model, loss, batches[0])
    if compiled:
        loss = torch.compile(loss)
    optimizer = torch.optim.Adam(model.parameters(), 0.0, BETAS, EPSILON, fused=True)
    d_model = model.embedding.embedding_dim
    steps = 0

    def take_step(source: Tensor, target: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        optimizer.zero_grad(set_to_none=True)
        value = loss(source, target)
        value.backward()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(steps, d_model, warmup_steps)
        optimizer.step()
        return value.detach()

    return _prepared(take_step, batches, {"loss": before, "about": about}, device)


def prepare_stock(
    path: str,
    dropout: float,
    attention_dropout: float,
    dtype: str,
    label_smoothing: float,
    warmup_steps: int,
    ids: tuple[int, int],
    device: str = "cpu",
) -> Prepared:
    """nn.Transformer, CrossEntropyLoss and Adam as they come, a scheduler, default threads.

    Its loss is of a model of its own, so "loss" is not among its facts. Raises RefusalError where
    PyTorch has no such device.
    """
    _check_device(device)
    torch.manual_seed(1)
    params, batches = _read(path, device)
    pad_id, bos_id = ids
    model = Stock(params, pad_id, max(side.shape[1] for side in batches[0]), dropout).to(device)
    model.set_attention_dropout(attention_dropout)
    criterion = nn.CrossEntropyLoss(ignore_index=pad_id, label_smoothing=label_smoothing)
    optimizer = torch.optim.Adam(model.parameters(), 1.0, BETAS, EPSILON)
    d_model = model.embedding.embedding_dim
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step + 1, d_model, warmup_steps)
    )

    def take_step(source: Tensor, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        with _autocast(dtype, device):
            logits = model(source, _shifted(target, bos_id))
            loss = criterion(logits.flatten(0, 1), target.T.flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach()

    return _prepared(take_step, batches, {"about": "nn.Transformer"}, device)


def learning_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """Equation (3) of §5.3; step counts from 1."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def smoothed_loss(logits: Tensor, target: Tensor, label_smoothing: float, pad_id: int) -> Tensor:
    """Ours: eps / (V - 1) off the target, less the entropy of that; a mean over real tokens.

    PyTorch spreads eps over all V tokens, the right one too, so it is given as much more.
    """
    size = logits.shape[-1]
    off = label_smoothing / (size - 1)
    on = 1 - label_smoothing
    entropy = -on * math.log(on) - (label_smoothing * math.log(off) if off else 0.0)
    mean = F.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=off * size
    )
    return mean - entropy


def _tuned_loss(
    model: Tuned, label_smoothing: float, dtype: str, pad_id: int, bos_id: int
) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(source: Tensor, target: Tensor) -> Tensor:
        with _autocast(dtype, source.device.type):
            logits = model(source, _shifted(target, bos_id))
            return smoothed_loss(logits, target, label_smoothing, pad_id)

    return loss


def _choose_attention(model: Tuned, loss: Callable[..., Tensor], batch: list[Tensor]) -> str:
    """Set the faster way to attend; says which, with the seconds of both."""

    def seconds() -> float:
        _wait(batch[0].device.type)
        start = time.perf_counter()
        loss(*batch).backward()
        model.zero_grad(set_to_none=True)
        _wait(batch[0].device.type)
        return time.perf_counter() - start

    found = {}
    for name, attend in ATTENTIONS.items():
        model.attend = attend
        seconds()
        found[name] = min(seconds() for _ in range(TRIALS))
    best = min(found, key=lambda name: found[name])
    model.attend = ATTENTIONS[best]
    trials = ", ".join(f"{name} {1000 * taken:,.0f}" for name, taken in found.items())
    return f"attention by {best} (ms a gradient: {trials})"


def _check_device(device: str) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusalError(
            "expected PyTorch to find the GPU that JAX takes, found none; install PyTorch for "
            "CUDA, or keep all on the CPU with JAX_PLATFORMS=cpu"
        )


def _wait(device: str) -> None:
    """Until a GPU has done all that it was told."""
    if device == "cuda":
        torch.cuda.synchronize()


def _read(path: str, device: str) -> tuple[dict[str, np.ndarray], list[list[Tensor]]]:
    with np.load(path) as work:
        params = {name: work[name] for name in work.files if name not in ("source", "target")}
        sides = [
            torch.tensor(work[name], dtype=torch.int64, device=device)
            for name in ("source", "target")
        ]
    return params, [list(pair) for pair in zip(*sides, strict=True)]


def _shifted(target: Tensor, bos_id: int) -> Tensor:
    return F.pad(target[:, :-1], (1, 0), value=bos_id)


def _autocast(dtype: str, device: str) -> Any:
    return nullcontext() if dtype == "float32" else torch.autocast(device, DTYPES[dtype])


def _prepared(
    take_step: Callable[..., Tensor],
    batches: list[list[Tensor]],
    facts: dict[str, Any],
    device: str,
) -> Prepared:
    on_gpu = device == "cuda"
    where = torch.cuda.get_device_name() if on_gpu else f"{torch.get_num_threads()} threads"
    facts["about"] += f", {where}"

    def take_turn() -> list[float]:
        losses = [take_step(*batch) for batch in batches]
        _wait(device)
        return [loss.item() for loss in losses]

    memory = torch.cuda.max_memory_allocated if on_gpu else None
    return Prepared(take_turn, len(batches), facts, memory)
