"""The results of PyTorch's own layers, loss and Adam on small random numbers."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]

T = TypeVar("T")
Arrays = dict[str, np.ndarray]

PAD, BOS, FAINT, SIZE = 0, 1, 3, 15
D_MODEL, NUM_LAYERS = 16, 2
SETTINGS = {"num_heads": 4, "label_smoothing": 0.1, "warmup_steps": 4, "learning_rate_scale": 0.1}
SOURCE = [[7, 4, 9, 12, 2, 0], [5, 14, 2, 0, 0, 0], [4, 4, 8, 13, 6, 2], [FAINT, 0, 0, 0, 0, 0]]
INPUTS = [[BOS, 8, 8, 10, 4], [BOS, 6, 0, 0, 0], [BOS, 11, 5, 9, 0], [FAINT, 6, 11, 0, 0]]
# The last row trains nothing: the gradient of its faint token would be far larger than the others.
TARGETS = [[8, 8, 10, 4, 2], [6, 2, 0, 0, 0], [11, 5, 9, 2, 0], [0, 0, 0, 0, 0]]
STEPS = 8


class TorchTransformer(nn.Module):
    """Figure 1 of PyTorch's layers in float64; embeddings and positions are written out here."""

    def __init__(self) -> None:
        """Define the layers. Dropout is 0, and training mode keeps the fused fast path off."""
        super().__init__()
        options: dict[str, Any] = {
            "d_model": D_MODEL,
            "nhead": SETTINGS["num_heads"],
            "dim_feedforward": 24,
            "dropout": 0.0,
            "activation": "relu",
            "layer_norm_eps": 1e-6,
            "batch_first": True,
            "norm_first": False,
            "dtype": torch.float64,
        }
        self.embedding = nn.Embedding(SIZE, D_MODEL, dtype=torch.float64)
        count = range(NUM_LAYERS)
        self.encoder = nn.ModuleList(nn.TransformerEncoderLayer(**options) for _ in count)
        self.decoder = nn.ModuleList(nn.TransformerDecoderLayer(**options) for _ in count)

    def forward(self, source: Tensor, inputs: Tensor) -> dict[str, Tensor]:
        """Return layers' outputs [B, T, d_model], such as "encoder_0", and "logits" [B, T, V]."""
        outputs, padding = {}, source == PAD
        memory = self._embed(source)
        for i, layer in enumerate(self.encoder):
            memory = outputs[f"encoder_{i}"] = layer(memory, src_key_padding_mask=padding)
        hidden, length = self._embed(inputs), inputs.shape[1]
        for i, layer in enumerate(self.decoder):
            hidden = outputs[f"decoder_{i}"] = layer(
                hidden,
                memory,
                tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
                tgt_key_padding_mask=inputs == PAD,
                memory_key_padding_mask=padding,
            )
        return {**outputs, "logits": F.linear(hidden, self.embedding.weight)}

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) * math.sqrt(D_MODEL) + positions(tokens.shape[1])


def record() -> Arrays:
    """Return inputs, weights and results by name; results of float64 as float32."""
    tokens = {"source": SOURCE, "inputs": INPUTS, "targets": TARGETS}
    found = {
        **{name: torch.tensor(ids) for name, ids in tokens.items()},
        **{name: torch.tensor(value) for name, value in SETTINGS.items()},
        **layers_and_logits(),
        **training(),
        **named("attention", attention()),
        **named("adam", adam()),
    }
    return {name: as_array(tensor) for name, tensor in found.items()}


def as_array(tensor: Tensor) -> np.ndarray:
    """Return a copy, with numbers as float32 and token ids as int32."""
    return tensor.detach().numpy().astype(np.float32 if tensor.is_floating_point() else np.int32)


def named(prefix: str, tensors: Mapping[str, T]) -> dict[str, T]:
    """Return the tensors with "prefix/" before each name."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def draw_weights(module: nn.Module, seed: int) -> None:
    """Fill all parameters with multiples of 1/64, exact in float32 and short when compressed."""
    random = np.random.default_rng(seed)
    norms = [id(norm.weight) for norm in module.modules() if isinstance(norm, nn.LayerNorm)]
    for parameter in module.parameters():
        drawn = np.round(64 * 0.3 * random.normal(size=tuple(parameter.shape))) / 64
        parameter.data.copy_(torch.tensor(drawn + (id(parameter) in norms)))


def build_model() -> TorchTransformer:
    """Return a random model, whose attention has zeros as biases, because the paper's has none.

    The embedding of the token FAINT nearly cancels position 0. The first norm there gets numbers of
    the size of its epsilon, so that another epsilon gives other results.
    """
    model = TorchTransformer()
    draw_weights(model, seed=1)
    with torch.no_grad():
        faint = model.embedding.weight[FAINT] / 1024 - positions(1)[0]
        model.embedding.weight[FAINT] = faint / math.sqrt(D_MODEL)
        for attention in modules(model, nn.MultiheadAttention):
            for bias in (attention.in_proj_bias, attention.out_proj.bias):
                bias.zero_()
                bias.requires_grad = False
    return model


def modules(model: nn.Module, kind: type) -> Iterator[Any]:
    """Return the modules of this kind inside the model."""
    return (module for module in model.modules() if isinstance(module, kind))


def trained_parameters(model: nn.Module) -> dict[str, Any]:
    """Return the parameters that the paper's model has, by PyTorch's names."""
    return {name: part for name, part in model.named_parameters() if part.requires_grad}


def positions(length: int) -> Tensor:
    """Return sines and cosines [length, d_model] as PyTorch's tutorials compute them."""
    table = torch.zeros(length, D_MODEL, dtype=torch.float64)
    steps = torch.arange(length, dtype=torch.float64)[:, None]
    pairs = torch.arange(0, D_MODEL, 2, dtype=torch.float64)
    angles = steps * torch.exp(-math.log(10000.0) * pairs / D_MODEL)
    table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return table


def layers_and_logits() -> dict[str, Tensor]:
    """Return the model's weights, and the results of its forward pass."""
    model = build_model()
    outputs = model(torch.tensor(SOURCE), torch.tensor(INPUTS))
    return {**named("weight", trained_parameters(model)), **named("output", outputs)}


def cross_entropy(model: TorchTransformer, label_smoothing: float) -> Tensor:
    """Return PyTorch's label-smoothed cross-entropy: a mean over the tokens that are not PAD."""
    logits = model(torch.tensor(SOURCE), torch.tensor(INPUTS))["logits"]
    targets = torch.tensor(TARGETS).flatten()
    return F.cross_entropy(
        logits.flatten(0, 1), targets, ignore_index=PAD, label_smoothing=label_smoothing
    )


def training() -> dict[str, Tensor]:
    """Return the loss before each step of training, and the gradient of the first step."""
    model = build_model()
    optimizer, schedule = adam_with_schedule(model.parameters())
    nll = cross_entropy(model, label_smoothing=0.0)
    losses, gradients = [], {}
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = cross_entropy(model, SETTINGS["label_smoothing"])
        loss.backward()
        if not gradients:
            parameters = trained_parameters(model)
            gradients = {name: part.grad.clone() for name, part in parameters.items()}
        losses.append(loss)
        optimizer.step()
        schedule.step()
    return {**named("gradient", gradients), "nll": nll, "cross_entropy": torch.stack(losses)}


def adam_with_schedule(
    parameters: Iterable[nn.Parameter],
) -> tuple[torch.optim.Adam, torch.optim.lr_scheduler.LambdaLR]:
    """Return the paper's Adam, and equation (3) as a factor on a learning rate of 1 (§5.3)."""
    optimizer = torch.optim.Adam(parameters, lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    warmup, scale = SETTINGS["warmup_steps"], SETTINGS["learning_rate_scale"]

    def rate(steps_taken: int) -> float:
        step = steps_taken + 1
        return scale * D_MODEL**-0.5 * min(step**-0.5, step * warmup**-1.5)

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, rate)


def adam() -> dict[str, Tensor]:
    """Return gradients [step, 3, 4], from 1 down to epsilon, and the parameters after each step."""
    random = np.random.default_rng(2)
    gradients = torch.tensor(random.normal(size=(STEPS, 3, 4)).astype(np.float32)).double()
    gradients *= torch.tensor([[1.0], [1e-4], [2e-9]])
    parameter = nn.Parameter(torch.ones(3, 4, dtype=torch.float64))
    optimizer, schedule = adam_with_schedule([parameter])
    parameters = [parameter.detach().clone()]
    for gradient in gradients:
        parameter.grad = gradient
        optimizer.step()
        schedule.step()
        parameters.append(parameter.detach().clone())
    return {"gradients": gradients, "parameters": torch.stack(parameters)}


def attention() -> dict[str, Tensor]:
    """Return attention under three masks, with values wider than keys: equation (1)."""
    random = np.random.default_rng(3)
    widths = {"queries": 4, "keys": 4, "values": 6}
    heads = {
        name: torch.tensor(random.normal(size=(3, 2, 6, width)).astype(np.float32)).double()
        for name, width in widths.items()
    }
    tokens = torch.tensor(SOURCE[:3])
    real = (tokens != PAD)[:, None, None, :]
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    masks = {"padding": real, "causal": causal, "both": real & causal}
    attended = {
        name: F.scaled_dot_product_attention(*heads.values(), attn_mask=mask)
        for name, mask in masks.items()
    }
    return {**heads, "tokens": tokens, **attended}
